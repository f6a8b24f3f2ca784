"""Requests of the model to models of the same server."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

import msgspec

from adapters.tensors import Data
from runtimes.tensor.requests import messages
from runtimes.tensor.requests.messages import CallHead, ModelMessage, ResponseHead
from runtimes.tensor.triton_api import process
from runtimes.tensor.triton_api.channel import RequestChannel
from runtimes.tensor.triton_api.errors import TritonError, TritonModelException
from runtimes.tensor.triton_api.responses import BackendResponse
from runtimes.tensor.triton_api.tensors import BackendTensor

_decode_head = msgspec.msgpack.Decoder(ResponseHead).decode


def begin(head: CallHead, tensors: Sequence[Data]) -> BackendCall:
    """Send a request. Raises `TritonModelException` outside of `execute`."""
    channel = process.channel()
    if not process.executing:
        raise TritonModelException("BLS is only supported during the 'execute' function.")
    call = BackendCall(channel, channel.number(), head.model)
    channel.send(messages.CALL, call.number, head, tensors)
    return call


def is_blocking() -> bool:
    """Whether `execute` itself makes the call, so that it cannot return before the response."""
    return process.executor == threading.get_ident()


class BackendCall:
    """The responses to one request of the model. It may be iterated again after its end."""

    def __init__(self, channel: RequestChannel, number: int, model: str) -> None:
        self.number = number
        self._channel = channel
        self._model = model
        self._arrived: deque[ModelMessage] = deque()
        self._responses: list[BackendResponse] = []
        self._next = 0
        self._taken = 0
        self._finished = False
        self._open = True
        """Whether the server has more to send."""
        process.calls[number] = self._arrived

    def __iter__(self) -> BackendCall:
        if self._finished and self._next >= len(self._responses):
            self._next = 0
        return self

    def __next__(self) -> BackendResponse:
        if self._finished:
            if self._next >= len(self._responses):
                raise StopIteration("Iteration is done for the responses.")
            self._next += 1
            return self._responses[self._next - 1]
        response = self._receive()
        self._responses.append(response)
        self._next = len(self._responses)
        return response

    def only(self) -> BackendResponse:
        """The only response of a model that is not decoupled."""
        return self._receive()

    def cancel(self) -> None:
        """Cancel the request; the model decides whether an error follows."""
        if self._open:
            self._channel.send(messages.CALL_CANCEL, self.number, None)

    def _receive(self) -> BackendResponse:
        message = self._channel.wait(lambda: self._arrived.popleft() if self._arrived else None)
        if message is None:
            self._close()
            return BackendResponse(error=TritonError("the server has closed the connection"))
        head = _decode_head(message.header)
        self._taken += 1
        if head.final:
            self._close()
        elif self._taken % (messages.WINDOW // 2) == 0:
            self._channel.send(messages.CALL_CREDIT, self.number, messages.WINDOW // 2)
        if head.error is not None:
            code, text = head.error
            return BackendResponse(error=TritonError(text, code))
        parts, _ = message.tensors(head.outputs, 0)
        outputs = [
            BackendTensor.received(output.name, output.datatype, output.shape, part)
            for output, part in zip(head.outputs, parts, strict=True)
        ]
        return BackendResponse(outputs, parameters=head.parameters)

    def _close(self) -> None:
        self._finished = True
        self._open = False
        process.calls.pop(self.number, None)

    def __del__(self) -> None:
        if self._open and not self._channel.closed and not self._channel.forked:
            process.calls.pop(self.number, None)
            self._channel.send(messages.CALL_CANCEL, self.number, None)


def arrived(message: ModelMessage) -> None:
    """Add a response from the server."""
    if (queue := process.calls.get(message.number)) is not None:
        queue.append(message)
