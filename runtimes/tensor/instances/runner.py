"""One loaded model and the rules for calling it, on a thread or in a process."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from runtimes.tensor import texts
from runtimes.tensor.backends.base import Array, Batch, Model, ModelFailed, RowsFailed, Tensors
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.instances.outputs import Outputs, reshaped

MAX_MESSAGE = 1000
log = logging.getLogger(__name__)


class Runner:
    """Calls a model and checks its outputs. Any exception of the model becomes a `ModelFailed`."""

    def __init__(self, config: ModelConfig, model: Model, log: Callable[[str], None]) -> None:
        """`log` gets the traceback of each exception of the model."""
        self.model = model
        self._outputs = Outputs(config)
        self._batched = config.max_batch_size > 0
        self._log = log
        self._reshapes = {spec.name: (spec.dims, spec.reshape) for spec in config.inputs if spec.reshape is not None}

    def infer(self, inputs: Tensors, rows: int) -> Tensors:
        """All outputs of one batch. Raises only `ModelFailed` and `RowsFailed`."""
        if self._reshapes:
            inputs = self._reshaped(inputs)
        try:
            answer = self.model.infer(inputs)
        except BaseException as error:  # SystemExit too: the model's code does not decide when we end
            raise self._failed(error) from None
        count = rows if self._batched else None
        if type(answer) is tuple and len(answer) == 2:
            outputs, errors = answer
            if failed := _row_errors(errors, rows):
                raise RowsFailed(self._outputs.checked(outputs, count), failed)
            answer = outputs
        return self._outputs.checked(answer, count)

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
        failed[int(row)] = str(error)[:MAX_MESSAGE] or type(error).__name__
    return failed
