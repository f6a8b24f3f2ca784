"""A copy of a model that receives requests whole: it executes a list of requests, and each ends separately."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import Context
from math import inf
from typing import Protocol, cast

import msgspec

from adapters.errors import InferenceError
from runtimes.tensor.instances.copy import Copy
from runtimes.tensor.instances.worker import Job, MakeWorker, ModelThread
from runtimes.tensor.interfaces import Done, InstanceEnded, InstanceLost
from runtimes.tensor.requests.messages import ExecutedHead, MessageTooLarge, ModelMessage, ResponseHead
from runtimes.tensor.requests.open_request import OpenRequest, message_of
from runtimes.tensor.requests.outcomes import error_of, outputs_of
from runtimes.tensor.scheduling.pending import for_caller

_decode_response = msgspec.msgpack.Decoder(ResponseHead).decode
_decode_executed = msgspec.msgpack.Decoder(ExecutedHead).decode


class RequestSender(ModelThread, Protocol):
    """A worker that takes whole requests."""

    def execute(self, head: object, tensors: Sequence[object]) -> None: ...

    def credit(self, number: int, responses: int) -> None: ...

    def cancel(self, number: int) -> None: ...


class RequestCopy(Copy):
    """A `RequestInstance`. It executes one list at a time; requests of earlier lists may still be open."""

    def __init__(self, job: Job, make: MakeWorker, execution_timeout: float) -> None:
        super().__init__(job, make, execution_timeout)
        self._outputs = tuple(spec.name for spec in job.config.outputs)
        self._requests: dict[int, tuple[OpenRequest, Callable[[OpenRequest], None]]] = {}
        self._numbers = 0

    @property
    def _sender(self) -> RequestSender:
        return cast("RequestSender", self._worker)

    def execute(self, requests: Sequence[OpenRequest], on_end: Callable[[OpenRequest], None], done: Done) -> None:
        """Execute requests. `on_end` is called for each at its end, `done` when the copy can execute others."""
        if not self.ready:
            for request in requests:
                request.failed(for_caller(InstanceEnded()))
                on_end(request)
            done(InstanceEnded(f"{self.name} is being replaced"))
            return
        heads, tensors = [], []
        for request in requests:
            number = request.number
            if number not in self._requests:  # else it was rescheduled
                self._numbers = number = self._numbers + 1
            self._requests[number] = (request, on_end)
            request.executed_by(self, number)
            head, data = message_of(number, request.inference, self._outputs, request.trace)
            heads.append(head)
            tensors += data
        try:
            self._sender.execute(heads, tensors)
        except MessageTooLarge:
            for head in heads:
                self._requests.pop(head.number, None)
            raise
        self._begin(done)

    def credit(self, number: int, responses: int) -> None:
        self._sender.credit(number, responses)

    def cancel(self, number: int) -> None:
        if number in self._requests:
            self._sender.cancel(number)

    def latest_due(self) -> float:
        """The latest deadline of the requests that are open here."""
        return max((request.due for request, _ in self._requests.values()), default=inf)

    def context_of(self, number: int) -> Context | None:
        """The traces of an open request; for 0 those of the only open one. None if it has ended, or is unknown."""
        if not number and len(self._requests) == 1:
            (number,) = self._requests
        entry = self._requests.get(number)
        return None if entry is None else entry[0].context

    # Events of the worker.

    def executed(self, message: ModelMessage) -> None:
        """Record that `execute` has returned."""
        head = _decode_executed(message.header)
        offset = 0
        for response in head.responses:
            offset = self._respond(response, message, offset)
        for number in head.rescheduled:
            if (entry := self._requests.get(number)) is not None:
                entry[0].rescheduled()
        self.answered({})

    def sent(self, message: ModelMessage) -> None:
        """Deliver a response of a sender."""
        self._respond(_decode_response(message.header), message, 0)

    def _respond(self, head: ResponseHead, message: ModelMessage, offset: int) -> int:
        entry = self._requests.pop(head.number, None) if head.final else self._requests.get(head.number)
        if entry is None:
            return message.tensors(head.outputs, offset)[1]
        request, on_end = entry
        if head.error is not None:
            request.failed(error_of(*head.error), final=head.final)
        elif head.empty:
            request.ended()
        else:
            outputs, offset = outputs_of(message, head, offset)
            request.responded(outputs)
        if head.final:
            on_end(request)
        return offset

    def _fail(self, error: InstanceLost) -> None:
        requests, self._requests = self._requests, {}
        for request, on_end in requests.values():
            request.failed(self._lost_error(error))
            on_end(request)
        super()._fail(error)

    def _lost_error(self, error: InstanceLost) -> InferenceError:
        """A new error for each request."""
        return for_caller(error)
