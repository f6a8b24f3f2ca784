"""Outputs of a model, checked against its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from runtimes.tensor.backends.base import Array, ModelFailed, Tensors
from runtimes.tensor.configuration.model_config import Dims, ModelConfig
from runtimes.tensor.datatypes import DTYPES, datatype_of


class Outputs:
    """The outputs that one model may return."""

    def __init__(self, config: ModelConfig) -> None:
        self._batched = config.max_batch_size > 0
        scattered = {name for spec in config.batch_outputs for name in spec.target_name}
        self._outputs = [
            _Output(spec.name, spec.datatype, spec.dims, spec.reshape, self._batched, any_shape=spec.name in scattered)
            for spec in config.outputs
        ]
        if config.sequence_batching is not None:
            declared = {output.name for output in self._outputs}
            self._outputs += [
                _Output(state.output_name, state.datatype, state.dims, None, self._batched)
                for state in config.sequence_batching.states
                if state.output_name not in declared
            ]
        self._count = len(self._outputs)

    def checked(self, answer: Any, rows: int | None) -> Tensors:
        """Check outputs. Returns contiguous arrays by name; `rows` None is any number. Raises `ModelFailed`, which
        names the output."""
        if not isinstance(answer, Mapping):
            raise ModelFailed(f"the model must return a dict of its outputs, and returned a {type(answer).__name__}")
        checked = {}
        for output in self._outputs:
            if (value := answer.get(output.name)) is None:
                raise ModelFailed(f"the model did not return its output `{output.name}`")
            checked[output.name] = output.checked(value, rows)
        if len(answer) != self._count:
            extra = next(name for name in answer if name not in checked)
            raise ModelFailed(f"the model returned `{extra}`, which is not one of its outputs")
        return checked


class _Output:
    def __init__(
        self,
        name: str,
        datatype: str,
        dims: Dims,
        reshape: Dims | None,
        batched: bool,
        *,
        any_shape: bool = False,
    ) -> None:
        """`any_shape`: the scheduler cuts the output for each request, and has the number of elements."""
        self.name = name
        self._any_shape = any_shape
        self._datatype = datatype
        self._dtype = DTYPES[datatype]
        self._is_bytes = datatype == "BYTES"
        self._own = dims if reshape is None else reshape
        self._fixed = -1 not in self._own
        self._outer = None if reshape is None else dims
        self._batched = batched

    def checked(self, value: Any, rows: int | None) -> Array:
        array = value if isinstance(value, np.ndarray) else self._array(value)
        if self._is_bytes:
            array = self._binaries(array)
        elif array.dtype != self._dtype:
            raise ModelFailed(
                f"output `{self.name}` is {self._datatype}, and the model returned {datatype_of(array.dtype)}"
            )
        if self._any_shape:
            return array if array.flags.c_contiguous else np.ascontiguousarray(array)
        shape = array.shape
        if self._batched:
            if not shape or (rows is not None and shape[0] != rows):
                have = shape[0] if shape else "no"
                raise ModelFailed(f"output `{self.name}` has {have} rows for a batch of {rows}")
            shape = shape[1:]
        if shape != self._own and not self._fits(shape):
            raise ModelFailed(f"output `{self.name}` is {_format(self._own)}, and the model returned {_format(shape)}")
        if self._outer is not None:
            array = array.reshape(array.shape[: self._batched] + reshaped(shape, self._own, self._outer))
        return array if array.flags.c_contiguous else np.ascontiguousarray(array)

    def _fits(self, shape: Dims) -> bool:
        if self._fixed or len(shape) != len(self._own):
            return False
        return all(expected in (-1, have) for expected, have in zip(self._own, shape, strict=True))

    def _array(self, value: Any) -> Array:
        """An output as an array. Lists and numbers take the output's datatype."""
        try:
            return np.array(value, dtype=self._dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise ModelFailed(f"output `{self.name}` is no {self._datatype} array: {error}") from None

    def _binaries(self, array: Array) -> Array:
        if array.dtype.kind not in "OSU":
            raise ModelFailed(f"output `{self.name}` is BYTES, and the model returned {datatype_of(array.dtype)}")
        binaries = np.empty(array.size, dtype=object)
        binaries[:] = [self._binary(item) for item in array.ravel().tolist()]
        return binaries.reshape(array.shape)

    def _binary(self, item: object) -> bytes:
        if type(item) is bytes:
            return item
        if isinstance(item, str):
            return item.encode()
        if isinstance(item, bytes | bytearray | memoryview):
            return bytes(item)
        raise ModelFailed(f"output `{self.name}` is BYTES, and one of its elements is a {type(item).__name__}")


def reshaped(shape: Dims, dims: Dims, target: Dims) -> Dims:
    """The shape with the rank of `target`: each variable dimension takes the length of its counterpart in `dims`."""
    lengths = iter([have for have, dim in zip(shape, dims, strict=True) if dim == -1])
    return tuple([next(lengths, -1) if dim == -1 else dim for dim in target])


def _format(shape: Dims) -> str:
    return "[" + ", ".join(str(length) for length in shape) + "]"
