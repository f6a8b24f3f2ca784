"""One request of a model that receives requests whole, from its arrival to its final response."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextvars import copy_context
from math import inf
from typing import Any, Final, Protocol

import numpy as np

from adapters.tensors import Data, Inference, Tensor, join_bytes
from runtimes import spans
from runtimes.tensor.interfaces import Array
from runtimes.tensor.requests.messages import WINDOW, InferenceHead, TensorHead, Value
from runtimes.tensor.requests.outcomes import INTERNAL, NOT_ITERATIVE, ModelOutputs, error_of
from runtimes.tensor.scheduling.pending import Pending, PreparedRequest, RequestOwner
from runtimes.tensor.scheduling.responses import Delivery, Responses

SEQUENCE_START, SEQUENCE_END = 1, 2
_RESERVED: Final = frozenset(
    {"sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "binary_data_output"}
)
"""Parameters of the protocol that models receive in other fields."""

_AT_ONCE: Final = Delivery()


class ExecutingCopy(Protocol):
    """The copy that executes a request."""

    def credit(self, number: int, responses: int) -> None:
        """Permit the model to send further responses."""
        ...

    def cancel(self, number: int) -> None:
        """Notify the model that it may stop."""
        ...


class OpenRequest(Pending):
    """The future of a request's outputs or, with `responses`, of its end. It is also the stream's source."""

    __slots__ = ("_ended", "_executor", "_number", "_owed", "_paused", "context", "delivery", "inference", "responses")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        owner: RequestOwner,
        prepared: PreparedRequest,
        inference: Inference,
        arrived: float,
        due: float = inf,
    ) -> None:
        super().__init__(loop, owner, prepared, arrived, due)
        self.inference = inference
        self.context = copy_context()
        """The traces that the request belongs to, for requests that the model makes."""
        self.delivery = _AT_ONCE
        self.responses: Responses | None = None
        self._executor: ExecutingCopy | None = None
        self._number = 0
        self._owed = 0
        self._paused = False
        self._ended = False

    # ── the copy's side ───────────────────────────────────────────────────────────────────────────────

    @property
    def number(self) -> int:
        """The copy's number of the request; 0 before it is sent."""
        return self._number

    @property
    def trace(self) -> str:
        """See `InferenceHead`."""
        span = self.context.get(spans.around)
        return "" if span is None else json.dumps(dict(span.log.fields(span)))

    def executed_by(self, executor: ExecutingCopy, number: int) -> None:
        """Record the copy that the request was sent to."""
        self._executor, self._number = executor, number
        if self.responses is not None:
            self.responses.begun(self)

    def responded(self, outputs: ModelOutputs) -> None:
        if self.responses is None:
            self.delivery.answer(self, outputs)
        elif not self.done():
            self.push(outputs)
        if outputs.final:
            self.ended()

    def push(self, outputs: ModelOutputs) -> None:
        """Add a response of a stream."""
        assert self.responses is not None
        self.responses.push(outputs)
        self._owed += 1
        self._return_credit()

    def rescheduled(self) -> None:
        """Record that the model requests another execution."""
        self.failed(error_of(INTERNAL, NOT_ITERATIVE), final=False)

    def ended(self) -> None:
        """Record that the model has ended the request."""
        self._ended = True
        if self.responses is not None:
            self.answer([])

    def failed(self, error: Exception, *, final: bool = True) -> None:
        """End the request for the client with an error. Unless it is `final`, the model is notified that it may
        stop."""
        self._ended = final
        self.delivery.fail(self, error)

    # ── the client's side ─────────────────────────────────────────────────────────────────────────────

    def cancel(self, msg: Any | None = None) -> bool:
        if not super().cancel(msg):
            return False
        self.leave()
        return True

    def fail(self, error: Exception) -> None:
        super().fail(error)
        self.leave()

    def leave(self) -> None:
        """Discard further responses, because the client has disconnected."""
        if self._executor is not None and not self._ended:
            self._executor.cancel(self._number)

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._return_credit()

    def stop(self) -> None:
        self.leave()

    def _return_credit(self) -> None:
        if self._owed >= WINDOW // 2 and not self._paused and not self._ended and self._executor is not None:
            self._executor.credit(self._number, self._owed)
            self._owed = 0


def tensor_of(name: str, datatype: str, array: Array) -> Tensor:
    """An array of the runtime as a tensor of the protocol."""
    if array.dtype == object:
        return Tensor(name, datatype, array.shape, join_bytes(list(array.reshape(-1))))
    return Tensor(name, datatype, array.shape, np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def message_of(
    number: int, inference: Inference, requested: Sequence[str], trace: str = ""
) -> tuple[InferenceHead, list[Data]]:
    """The request as its message."""
    tensors = inference.inputs
    heads = tuple([TensorHead(t.name, t.datatype, t.shape, len(t.data)) for t in tensors])
    names = tuple([output.name for output in inference.outputs]) if inference.outputs else tuple(requested)
    data = [tensor.data for tensor in tensors]
    parameters = inference.parameters
    if not parameters:
        return InferenceHead(heads, names, inference.id, number=number, trace=trace), data
    flags = SEQUENCE_START * bool(parameters.get("sequence_start")) | SEQUENCE_END * bool(
        parameters.get("sequence_end")
    )
    timeout = parameters.get("timeout", 0)
    correlation = parameters.get("sequence_id", 0)
    own: dict[str, Value] = {name: value for name, value in parameters.items() if name not in _RESERVED}
    head = InferenceHead(
        heads,
        names,
        inference.id,
        correlation if isinstance(correlation, str) else int(correlation),
        flags,
        int(timeout) if isinstance(timeout, int | float) else 0,
        own,
        number=number,
        trace=trace,
    )
    return head, data
