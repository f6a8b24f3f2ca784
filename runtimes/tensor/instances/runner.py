"""One loaded model and the rules for calling it, on a thread or in a process, and for its outputs."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from runtimes.tensor import texts
from runtimes.tensor.configuration.model_config import Dims, ModelConfig
from runtimes.tensor.datatypes import DTYPES, datatype_of
from runtimes.tensor.interfaces import Array, Batch, InvalidRow, Model, ModelFailed, RowsFailed, Tensors


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

    def names(self, selected: int) -> list[str]:
        """The names of selected outputs (`Batch.outputs`)."""
        return [output.name for place, output in enumerate(self._outputs) if selected >> place & 1]

    def checked(self, answer: Any, rows: int | None, selected: int = 0) -> Tensors:
        """Check outputs, all or those that are `selected`. Returns contiguous arrays by name; `rows` None is any
        number. Raises `ModelFailed`, which names the output."""
        if not isinstance(answer, Mapping):
            raise ModelFailed(f"the model must return a dict of its outputs, and returned a {type(answer).__name__}")
        checked = {}
        for place, output in enumerate(self._outputs):
            if selected and not selected >> place & 1:
                continue
            if (value := answer.get(output.name)) is None:
                raise ModelFailed(f"the model did not return its output `{output.name}`")
            checked[output.name] = output.checked(value, rows)
        if len(answer) != (selected.bit_count() or self._count):
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
            return item.encode(errors="replace")
        if isinstance(item, bytes | bytearray | memoryview):
            return bytes(item)
        raise ModelFailed(f"output `{self.name}` is BYTES, and one of its elements is a {type(item).__name__}")


def reshaped(shape: Dims, dims: Dims, target: Dims) -> Dims:
    """The shape with the rank of `target`: each variable dimension takes the length of its counterpart in `dims`."""
    lengths = iter([have for have, dim in zip(shape, dims, strict=True) if dim == -1])
    return tuple([next(lengths, -1) if dim == -1 else dim for dim in target])


def _format(shape: Dims) -> str:
    return "[" + ", ".join(str(length) for length in shape) + "]"


MAX_MESSAGE = 1000
log = logging.getLogger(__name__)


class Runner:
    """Calls a model and checks its outputs. Any exception of the model becomes a `ModelFailed`."""

    def __init__(self, config: ModelConfig, model: Model, log: Callable[[str], None]) -> None:
        """`log` gets the traceback of each exception of the model."""
        self.model = model
        self._infer_some: Any = getattr(model, "infer_some", None)
        self._outputs = Outputs(config)
        self._batched = config.max_batch_size > 0
        self._log = log
        self._reshapes = {spec.name: (spec.dims, spec.reshape) for spec in config.inputs if spec.reshape is not None}

    def infer(self, inputs: Tensors, rows: int, selected: int = 0) -> Tensors:
        """The outputs of one batch: all, or those that are `selected` and a `SelectiveModel` computes apart.

        Raises only `ModelFailed` and `RowsFailed`.
        """
        if self._reshapes:
            inputs = self._reshaped(inputs)
        if self._infer_some is None:
            selected = 0
        arguments = (self._outputs.names(selected),) if selected else ()
        infer = self._infer_some if selected else self.model.infer
        try:
            answer = infer(inputs, *arguments)
        except BaseException as error:  # SystemExit too: the model's code does not decide when we end
            raise self._failed(error) from None
        count = rows if self._batched else None
        if type(answer) is tuple and len(answer) == 2:
            outputs, errors = answer
            if failed := _row_errors(errors, rows):
                raise RowsFailed(self._outputs.checked(outputs, count, selected), failed)
            answer = outputs
        return self._outputs.checked(answer, count, selected)

    def stream(self, inputs: Tensors, send: Callable[[Tensors], bool]) -> None:
        """Send the responses of a decoupled model until `send` returns False. Raises only `ModelFailed`."""
        if self._reshapes:
            inputs = self._reshaped(inputs)
        source: Any = None
        try:
            source = self.model.infer(inputs)
            for answer in _responses(source):
                if not send(self._outputs.checked(answer, None)):
                    break
        except ModelFailed:
            raise
        except BaseException as error:
            raise self._failed(error) from None
        finally:
            self._end(source)

    def close(self) -> None:
        try:
            self.model.close()
        except BaseException as error:
            self._failed(error)

    def _end(self, source: Any) -> None:
        """Close the model's generator. Its errors are logged only: no request waits for it."""
        if (close := getattr(source, "close", None)) is None:
            return
        try:
            close()
        except BaseException as error:
            self._failed(error)

    def _reshaped(self, inputs: Tensors) -> dict[str, Array]:
        shaped = dict(inputs)
        for name, (dims, target) in self._reshapes.items():
            if (array := shaped.get(name)) is not None:
                lead = array.shape[: self._batched]
                shaped[name] = array.reshape(lead + reshaped(array.shape[self._batched :], dims, target))
        return shaped

    def _failed(self, error: BaseException) -> ModelFailed:
        try:
            self._log("".join(traceback.format_exception(error, limit=-20)))
            message = str(error)
        except Exception:
            message = "(its message cannot be read)"  # an exception whose own __str__ raises
        if isinstance(error, ModelFailed):
            return error
        name = type(error).__name__
        return ModelFailed(f"{name}: {message}"[:MAX_MESSAGE] if message else name)


def joined(batch: Batch) -> Tensors:
    """The members' inputs, one after the other."""
    members = batch.members
    if len(members) == 1:
        return {name: texts.expanded(array) for name, array in members[0].items()}
    return {name: texts.joined([member[name] for member in members]) for name in members[0]}


def _responses(source: Any) -> Iterator[Any]:
    """The responses of a decoupled model, which may also return one response or a list."""
    return iter((source,)) if isinstance(source, Mapping) else iter(source)


def _row_errors(errors: Any, rows: int) -> dict[int, str]:
    if not isinstance(errors, Mapping):
        raise ModelFailed("beside its outputs the model must return a dict from rows to errors")
    failed = {}
    for row, error in errors.items():
        if not isinstance(row, int | np.integer) or not 0 <= row < rows:
            raise ModelFailed(f"the model returned an error for row {row!r} of a batch of {rows}"[:MAX_MESSAGE])
        message = str(error)[:MAX_MESSAGE] or type(error).__name__
        failed[int(row)] = InvalidRow(message) if isinstance(error, InvalidRow) else message
    return failed
