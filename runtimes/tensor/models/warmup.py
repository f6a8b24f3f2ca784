"""Warm-up: requests that a new version must answer before it enters service, because first requests are slow and may
fail."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from adapters.errors import CallerError
from adapters.tensors import ITEM_SIZE, Inference, split_bytes
from runtimes.tensor.configuration.model_config import ModelConfig, SequenceControl, SequenceState, Warmup, WarmupInput
from runtimes.tensor.datatypes import DTYPES, datatype_of
from runtimes.tensor.interfaces import Array, Batch, Instance, ModelLoadError, RequestInstance, Tensors
from runtimes.tensor.requests.open_request import OpenRequest, tensor_of
from runtimes.tensor.scheduling.batch_inputs import BatchInputs
from runtimes.tensor.scheduling.pending import Pending, PreparedRequest
from runtimes.tensor.scheduling.responses import Responses

MAX_BYTES = 1 << 30


async def warm_up(config: ModelConfig, instance: Instance, model_folder: Path) -> None:
    """Send all warm-up requests to one copy. Raises `ModelLoadError` for the first that fails."""
    for warmup in config.warmup:
        try:
            inputs, rows = await asyncio.to_thread(inputs_of, config, warmup, model_folder)
            inputs = _with_batch_inputs(config, instance, inputs)
            for _ in range(warmup.count):
                if isinstance(instance, RequestInstance):
                    await _run_whole(config, instance, inputs, rows)
                else:
                    await run(config, instance, [inputs], rows)
        except Exception as error:
            raise ModelLoadError(f"warm-up `{warmup.name}` failed: {error}") from error


def _with_batch_inputs(config: ModelConfig, instance: Instance, inputs: Tensors) -> Tensors:
    """The inputs as the scheduler joins them: ragged ones flat, and with the inputs that describe the batch."""
    if isinstance(instance, RequestInstance):
        return inputs
    [added] = BatchInputs(config).added([inputs], [{name: array.shape for name, array in inputs.items()}])
    ragged = {spec.name for spec in config.inputs if spec.allow_ragged_batch and config.max_batch_size}
    return {name: array.reshape(-1) if name in ragged else array for name, array in added.items()}


class _Warmup:
    """The owner of a warm-up's request, which is never cancelled."""

    def withdraw(self, pending: Pending) -> None:
        return


async def _run_whole(config: ModelConfig, instance: RequestInstance, inputs: Tensors, rows: int) -> None:
    """One request to a copy that receives requests whole."""
    loop = asyncio.get_running_loop()
    prepared = PreparedRequest(inputs, rows, None)
    request = OpenRequest(loop, _Warmup(), prepared, _inference(config, inputs), loop.time())
    if config.decoupled:
        request.responses = Responses(request)
    returned = asyncio.Event()
    instance.execute([request], lambda _: None, lambda _: returned.set())
    try:
        if request.responses is not None:
            async for _ in request.responses:
                pass
        await request
        await returned.wait()
    finally:
        request.cancel()


def inference_of(config: ModelConfig, warmup: Warmup, model_folder: Path) -> Inference:
    """One request as a client sends it. Raises `ModelLoadError`."""
    try:
        return _inference(config, inputs_of(config, warmup, model_folder)[0])
    except (ModelLoadError, OSError) as error:
        raise ModelLoadError(f"warm-up `{warmup.name}` failed: {error}") from error


def _inference(config: ModelConfig, inputs: Tensors) -> Inference:
    datatypes = {spec.name: spec.datatype for spec in config.inputs}
    tensors = [
        tensor_of(name, datatypes.get(name) or datatype_of(array.dtype), array) for name, array in inputs.items()
    ]
    return Inference(config.name, inputs=tensors)


async def run(config: ModelConfig, instance: Instance, members: Sequence[Tensors], rows: int = 1) -> Tensors:
    """The outputs of one batch of members, each of so many rows; none of a stream. Raises what the copy reports."""
    answered: asyncio.Future[Tensors] = asyncio.get_running_loop().create_future()

    def end(result: Tensors | BaseException | None) -> None:
        if answered.done():
            return
        if isinstance(result, BaseException):
            answered.set_exception(result)
        else:
            answered.set_result(result or {})

    if not config.decoupled:
        instance.start(Batch(members, [rows] * len(members)), end)
        return await answered
    stream = instance.stream(members[0], lambda _: None, end)
    try:
        return await answered
    except asyncio.CancelledError:
        stream.stop()
        raise


def inputs_of(config: ModelConfig, warmup: Warmup, model_folder: Path) -> tuple[Tensors, int]:
    """The tensors of one request, and its rows. Raises `ModelLoadError`."""
    if warmup.batch_size > max(1, config.max_batch_size):
        raise ModelLoadError(f"its batch_size is over the model's max_batch_size, {config.max_batch_size}")
    rows = max(1, warmup.batch_size)
    batch = (rows,) if config.max_batch_size else ()
    inputs = {spec.name: _array(spec, batch, model_folder / "warmup") for spec in warmup.inputs}
    missing = [spec.name for spec in config.inputs if not spec.optional and spec.name not in inputs]
    if missing:
        raise ModelLoadError(f"it lacks the input `{missing[0]}`")
    if (batching := config.sequence_batching) is not None:
        for control in batching.controls:
            inputs.setdefault(control.name, _control(control, batch))
        for state in batching.states:
            inputs.setdefault(state.input_name, _state(state, batch))
    return inputs, rows


def _array(spec: WarmupInput, batch: tuple[int, ...], folder: Path) -> Array:
    shape = (*batch, *spec.dims)
    count = math.prod(shape)
    if count * ITEM_SIZE.get(spec.datatype, 8) > MAX_BYTES:
        raise ModelLoadError(f"`{spec.name}` is larger than {MAX_BYTES >> 20} MiB")
    if spec.data.startswith("file:"):
        content = (folder / spec.data.removeprefix("file:")).read_bytes()
        one = _decoded(spec, content, math.prod(spec.dims), count)
        return np.resize(one, count).reshape(shape)  # one row for all, or all of them
    if spec.data == "random":
        return random_array(spec.datatype, shape)
    return np.full(shape, b"", object) if spec.datatype == "BYTES" else np.zeros(shape, DTYPES[spec.datatype])


def _decoded(spec: WarmupInput, content: bytes, of_a_row: int, of_all: int) -> Array:
    if spec.datatype != "BYTES":
        if len(content) not in (of_a_row * ITEM_SIZE[spec.datatype], of_all * ITEM_SIZE[spec.datatype]):
            expected = of_a_row * ITEM_SIZE[spec.datatype]
            raise ModelLoadError(f"`{spec.name}` needs {expected} bytes for a row, and its file has {len(content)}")
        return np.frombuffer(content, DTYPES[spec.datatype])
    for count in {of_all, of_a_row}:
        try:
            elements = split_bytes(content, count, spec.name)
        except CallerError as error:
            failure = error
        else:
            array = np.empty(count, object)
            array[:] = elements
            return array
    raise ModelLoadError(str(failure))


def random_array(datatype: str, shape: tuple[int, ...], below: int = 100, seed: int = 0) -> Array:
    """Random values: small integers, because these are often indices; fractions around zero; short texts."""
    random = np.random.default_rng(seed)
    if datatype == "BYTES":
        words = np.empty(math.prod(shape), object)
        words[:] = [b"%d" % number for number in random.integers(0, 1000, words.size)]
        return words.reshape(shape)
    if datatype == "BF16":
        return (random.standard_normal(shape, np.float32).view("<u4") >> 16).astype("<u2")
    if datatype.startswith("FP"):
        return random.standard_normal(shape).astype(DTYPES[datatype])
    return random.integers(0, 2 if datatype == "BOOL" else below, shape).astype(DTYPES[datatype])


def _control(control: SequenceControl, batch: tuple[int, ...]) -> Array:
    """The value of a control at the start of a sequence."""
    shape = (*batch, 1)
    if control.kind == "corrid":
        if control.datatype == "BYTES":
            return np.full(shape, b"warm-up", object)
        return np.ones(shape, DTYPES[control.datatype])
    value = control.false_true[control.kind != "end"]
    return np.full(shape, value).astype(DTYPES[control.datatype])


def _state(state: SequenceState, batch: tuple[int, ...]) -> Array:
    dims = state.initial_dims or tuple(1 if dim == -1 else dim for dim in state.dims)
    shape = (*batch, *dims)
    if state.datatype == "BYTES":
        return np.full(shape, b"", object)
    if state.initial == "zero":
        return np.zeros(shape, DTYPES[state.datatype])
    row = np.frombuffer(state.initial, DTYPES[state.datatype])
    return np.resize(row, math.prod(shape)).reshape(shape)
