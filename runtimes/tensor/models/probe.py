"""A request with data of its own schema, which a model that was completed from its file must answer before it enters
service.

A first dimension of any length may be the batch, or time, or the points of one cloud. If it is only assumed to be the
batch, three rows must have the same answers together as alone: else the rows of a caller would change those of others.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
from collections.abc import Iterator
from typing import Final

import numpy as np

from adapters.tensors import ITEM_SIZE
from runtimes.tensor.configuration.model_config import Dims, ModelConfig, TensorSpec
from runtimes.tensor.interfaces import (
    Array,
    Instance,
    InstanceLost,
    InvalidRow,
    ModelFailed,
    ModelLoadError,
    RowsFailed,
    Tensors,
)
from runtimes.tensor.models.warmup import random_array, run

LENGTHS: Final = (8, 2, 32, 224)
"""Lengths that are tried for dimensions of any length: tokens, pairs, small and usual pictures."""
HIGHEST: Final = (100, 2)
"""Integers are below these: the second is for indices of few things."""
ROWS: Final = 3
MAX_BYTES: Final = 64 << 20
REASON: Final = 400
"""Characters of a framework's error."""
TOLERANCES: Final = {"FP16": 2e-2, "BF16": 5e-2, "FP32": 1e-3, "FP64": 1e-6}
"""Of the largest number of an output. Sums in another order differ less, and rows that are mixed differ more."""
log = logging.getLogger(__name__)


def is_needed(config: ModelConfig, source: ModelConfig) -> bool:
    """Whether the model was completed, and can be asked without a sequence or a stream. `source` is its file's."""
    is_written = (config.inputs, config.outputs, config.max_batch_size) == (
        source.inputs, source.outputs, source.max_batch_size,
    )  # fmt: skip
    is_plain = not config.decoupled and config.sequence_batching is None and config.ensemble is None
    return is_plain and not is_written and not config.batch_inputs and config.parameters.get("probe") != "false"


async def has_separate_rows(config: ModelConfig, instance: Instance) -> bool:
    """Whether rows have the same answers together as alone. False also for a model that answers no such request."""
    tries = _tries(config, ROWS)
    while (inputs := await asyncio.to_thread(next, tries, None)) is not None:
        try:
            members = [{name: array[i : i + 1] for name, array in inputs.items()} for i in range(ROWS)]
            alone = [await run(config, instance, [member]) for member in members]
            together = await run(config, instance, members)
        except ModelFailed:
            continue
        except InstanceLost:
            return False
        tolerance = 5e-2 if config.quantize else 0.0
        return all(
            _equal(spec, [one[spec.name] for one in alone], together[spec.name], tolerance) for spec in config.outputs
        )
    return False


async def check_answers(config: ModelConfig, instance: Instance) -> None:
    """Raises `ModelLoadError` if the model answers no request, and its schema leaves no doubt about what to send."""
    failure: Exception | None = None
    tries = itertools.chain(_tries(config, 1), _tries(config, 1, random=False))
    while (inputs := await asyncio.to_thread(next, tries, None)) is not None:
        try:
            await run(config, instance, [inputs])
        except RowsFailed as error:
            if all(isinstance(one, InvalidRow) for one in error.errors.values()):
                return  # made-up data need not be a picture
            failure = failure or error
        except ModelFailed as error:
            failure = failure or error
        except InstanceLost as error:
            raise ModelLoadError(f"the model ended its process for data of its own schema: {error}") from error
        else:
            return
    if failure is None:
        return
    reason = " ".join(str(failure).split())[:REASON]
    message = (
        f"the model cannot answer a request that its own file describes ({reason}): write its inputs and outputs in"
        " the configuration, or set parameters: {probe: false}"
    )
    if all(spec.datatype.startswith(("FP", "BF")) and -1 not in spec.dims for spec in config.inputs):
        raise ModelLoadError(message)
    log.warning("%s: with made-up data %s", config.name, message)


def _tries(config: ModelConfig, rows: int, *, random: bool = True) -> Iterator[Tensors]:
    """Inputs to try, until the model answers. If not `random`, all are zero: some models take few values."""
    inputs = [spec for spec in config.inputs if not spec.optional]
    lengths = LENGTHS if any(-1 in spec.dims for spec in inputs) else LENGTHS[:1]
    highest = HIGHEST if random and any(spec.datatype[0] in "IU" for spec in inputs) else HIGHEST[:1]
    batch = (rows,) if config.max_batch_size else ()
    for length in lengths:
        shapes = {spec.name: (*batch, *_lengths(spec.dims, length)) for spec in inputs}
        if sum(math.prod(shapes[spec.name]) * ITEM_SIZE.get(spec.datatype, 8) for spec in inputs) > MAX_BYTES:
            continue
        for limit in highest:
            arrays = {
                spec.name: random_array(spec.datatype, shapes[spec.name], limit, seed)
                for seed, spec in enumerate(inputs)
            }
            yield arrays if random else {name: _empty(array) for name, array in arrays.items()}


def _empty(array: Array) -> Array:
    return np.full(array.shape, b"", object) if array.dtype.hasobject else np.zeros_like(array)


def _lengths(dims: Dims, length: int) -> Dims:
    return tuple(length if dim == -1 else dim for dim in dims)


def _equal(spec: TensorSpec, alone: list[Array], together: Array, tolerance: float) -> bool:
    expected = np.concatenate([np.asarray(one) for one in alone])
    together = np.asarray(together)
    if expected.shape != together.shape:
        return False
    if spec.datatype not in TOLERANCES:
        return bool(np.array_equal(expected, together))
    if spec.datatype == "BF16":
        expected, together = ((one.astype("<u4") << 16).view("<f4") for one in (expected, together))
    largest = np.abs(expected[np.isfinite(expected)]).max(initial=0.0)
    allowed = max(tolerance, TOLERANCES[spec.datatype]) * float(largest)
    return bool(np.allclose(expected, together, rtol=0, atol=allowed, equal_nan=True))
