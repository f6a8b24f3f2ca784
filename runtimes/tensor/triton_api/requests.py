"""`InferenceRequest` of Triton's Python API: a request to the model, or one of the model to another model,
with its responses."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from adapters.tensors import Data
from runtimes.tensor.requests import messages
from runtimes.tensor.requests.messages import CallHead, ModelMessage, ResponseHead, Value
from runtimes.tensor.triton_api import process
from runtimes.tensor.triton_api.channel import RequestChannel
from runtimes.tensor.triton_api.errors import TritonError, TritonModelException
from runtimes.tensor.triton_api.responses import BackendResponse, BackendResponseSender, checked_parameters, heads
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


RELEASE_ALL, RELEASE_RESCHEDULE = 1, 2
"""`TRITONSERVER_REQUEST_RELEASE_…`."""


class PreferredMemory:
    """The required memory of outputs. Outputs are on the CPU here, in memory that both sides share."""

    def __init__(self, preferred_memory_type: int, preferred_device_id: int = 0) -> None:
        self.preferred_memory_type = preferred_memory_type
        self.preferred_device_id = preferred_device_id


class InferenceTrace:
    """The trace that a request belongs to. A request with the trace of another one is a part of it."""

    def __init__(self, context: str = "", number: int = 0) -> None:
        self._context = context
        self.number = number
        """The number of the request; 0 for a trace that the model has made."""

    def get_context(self) -> str | None:
        """The context of the request's span as JSON; None if the request is not traced."""
        return self._context or None


class BackendRequest:
    """A request. The constructor creates a request to a model of the same server, `received` a request to this
    model."""

    def __init__(
        self,
        request_id: str = "",
        correlation_id: int | str = 0,
        *,
        inputs: Sequence[BackendTensor],
        requested_output_names: Sequence[str],
        model_name: str | bytes,
        model_version: int = -1,
        flags: int = 0,
        timeout: int = 0,
        preferred_memory: PreferredMemory | None = None,
        trace: InferenceTrace | None = None,
        parameters: Mapping[str, Value] | None = None,
    ) -> None:
        if correlation_id is not None and not isinstance(correlation_id, int | str):
            raise TritonModelException("Correlation ID must be integer or string")
        model_name = model_name.decode() if isinstance(model_name, bytes) else model_name
        _check_types(model_name, request_id, correlation_id, model_version, flags, timeout, requested_output_names)
        self._model = model_name
        self._version = model_version
        self._inputs = _checked_inputs(inputs, request_id, self._model)
        self._requested = list(requested_output_names)
        if "" in self._requested:
            raise TritonModelException(
                f"Requested output name for request with id '{request_id}' and model name '{self._model}' should not"
                " be empty."
            )
        self._id, self._correlation = request_id, correlation_id
        self._flags, self._timeout = flags, timeout
        self._parameters = checked_parameters(parameters)
        self._trace = trace or InferenceTrace()
        self._release_flags = RELEASE_ALL
        self._sender: BackendResponseSender | None = None

    @classmethod
    def received(
        cls,
        head: Any,
        inputs: list[BackendTensor],
        sender: BackendResponseSender,
        requested: Sequence[str] | None = None,
    ) -> BackendRequest:
        """A request from the server; the required outputs are `requested`, or those of the head."""
        request = cls.__new__(cls)
        request._model, request._version = "", -1
        request._inputs, request._requested = inputs, list(head.requested if requested is None else requested)
        request._id, request._correlation = head.id, head.correlation
        request._flags, request._timeout = head.flags, head.timeout
        request._parameters, request._trace = head.parameters, InferenceTrace(head.trace, head.number)
        request._release_flags = RELEASE_ALL
        request._sender = sender
        return request

    def inputs(self) -> list[BackendTensor]:
        return self._inputs

    def requested_output_names(self) -> list[str]:
        return self._requested

    def request_id(self) -> str:
        return self._id

    def correlation_id(self) -> int | str:
        return self._correlation

    def flags(self) -> int:
        return self._flags

    def set_flags(self, flags: int) -> None:
        self._flags = flags

    def timeout(self) -> int:
        """Microseconds; 0 for none."""
        return self._timeout

    def parameters(self) -> str:
        """The parameters as JSON."""
        return json.dumps(self._parameters)

    def trace(self) -> InferenceTrace:
        return self._trace

    def model_name(self) -> str:
        return self._model

    # ── a request that came ───────────────────────────────────────────────────────────────────────────

    def get_response_sender(self) -> BackendResponseSender:
        if self._sender is None:
            raise TritonModelException("A request that the model makes has no response sender.")
        return self._sender

    def is_cancelled(self) -> bool:
        return self._sender is not None and self._sender.is_cancelled()

    def set_release_flags(self, flags: int) -> None:
        if flags not in (RELEASE_ALL, RELEASE_RESCHEDULE):
            raise TritonModelException("Unsupported release flags.")
        self._release_flags = flags

    @property
    def is_rescheduled(self) -> bool:
        return self._release_flags == RELEASE_RESCHEDULE

    # ── a request of the model ────────────────────────────────────────────────────────────────────────

    def exec(self, decoupled: bool = False) -> Any:
        """The response; with `decoupled` an iterator of them. Errors are responses."""
        call = begin(self._head(decoupled), [tensor.data() for tensor in self._inputs])
        return call if decoupled else call.only()

    def async_exec(self, decoupled: bool = False) -> Any:
        """An awaitable of the result of `exec`."""
        return asyncio.get_running_loop().run_in_executor(None, self.exec, decoupled)

    def _head(self, decoupled: bool) -> CallHead:
        inputs, _ = heads(self._inputs)
        return CallHead(
            model=self._model,
            version="" if self._version < 0 else str(self._version),
            inputs=inputs,
            requested=tuple(dict.fromkeys(self._requested)),
            id=self._id,
            correlation=self._correlation,
            flags=self._flags,
            timeout=self._timeout,
            parameters=self._parameters,
            decoupled=decoupled,
            blocking=is_blocking(),
            parent=self._trace.number,
        )


def _check_types(
    model_name: object,
    request_id: object,
    correlation_id: object,
    model_version: object,
    flags: object,
    timeout: object,
    requested_output_names: Sequence[object],
) -> None:
    """Raises TypeError as Triton does."""
    texts = {"model_name": model_name, "request_id": request_id}
    numbers = {"model_version": model_version, "flags": flags, "timeout": timeout}
    wrong = [name for name, value in texts.items() if not isinstance(value, str)]
    if not all(isinstance(name, str) for name in requested_output_names):
        wrong.append("requested_output_names")
    wrong += [name for name, value in numbers.items() if not isinstance(value, int)]
    if correlation_id is None:
        wrong.append("correlation_id")
    if wrong:
        raise TypeError(f"incompatible arguments of InferenceRequest: {', '.join(wrong)}")


def _checked_inputs(inputs: Sequence[BackendTensor], id: str, model: str) -> list[BackendTensor]:
    for tensor in inputs:
        if tensor is None:
            raise TritonModelException(
                f"Input tensor for request with id '{id}' and model name '{model}' should not be empty."
            )
        if not isinstance(tensor, BackendTensor):
            raise TypeError(f"inputs has a {type(tensor).__name__}, which is no Tensor")
    return list(inputs)
