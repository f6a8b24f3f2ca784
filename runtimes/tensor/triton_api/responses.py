"""`InferenceResponse` and the sender of responses of Triton's Python API."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from adapters.tensors import Data
from runtimes.tensor.requests import messages
from runtimes.tensor.requests.messages import ResponseHead, TensorHead, Value
from runtimes.tensor.triton_api.errors import INTERNAL, TritonError, TritonModelException
from runtimes.tensor.triton_api.tensors import BackendTensor

COMPLETE_FINAL = 1
"""`TRITONSERVER_RESPONSE_COMPLETE_FINAL`."""


class BackendResponse:
    """One response: outputs, or an error."""

    __slots__ = ("_error", "_parameters", "_tensors")

    def __init__(
        self,
        output_tensors: Sequence[BackendTensor] = (),
        error: TritonError | None = None,
        parameters: Mapping[str, Value] | None = None,
    ) -> None:
        self._tensors = list(output_tensors)
        for tensor in self._tensors:
            if tensor is None:
                raise TritonModelException("Output tensor for inference response should not be empty.")
            if not isinstance(tensor, BackendTensor):
                raise TypeError(f"output_tensors has a {type(tensor).__name__}, which is no Tensor")
        if error is not None and not isinstance(error, TritonError):
            raise TypeError(f"error is a TritonError, not a {type(error).__name__}")
        self._error = error
        self._parameters = checked_parameters(parameters)

    def output_tensors(self) -> list[BackendTensor]:
        return self._tensors

    def has_error(self) -> bool:
        return self._error is not None

    def error(self) -> TritonError | None:
        return self._error

    @property
    def has_parameters(self) -> bool:
        return bool(self._parameters)

    def parameters(self) -> str:
        """The parameters as JSON; empty without parameters."""
        return json.dumps(self._parameters) if self._parameters else ""


def checked_parameters(parameters: Any) -> dict[str, Value]:
    """Raises `TritonModelException` for keys and values that a request or response cannot have."""
    if parameters is None:
        return {}
    if not isinstance(parameters, Mapping):
        raise TritonModelException("Expect a dictionary, found type '" + str(type(parameters)) + "'.")
    for key, value in parameters.items():
        if not isinstance(key, str):
            raise TritonModelException(f"Expect parameters keys to have type str, found type '{type(key)}'.")
        if not isinstance(value, bool | int | float | str):
            raise TritonModelException(
                f"Expect parameters values to have type bool/int/str, found type '{type(value)}'."
            )
        if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
            raise TritonModelException(f"The parameter '{key}' does not fit 64 bits.")
    return dict(parameters)


def heads(tensors: Iterable[BackendTensor]) -> tuple[tuple[TensorHead, ...], list[Data]]:
    """Tensors in the form of a message."""
    made, parts = [], []
    for tensor in tensors:
        data = tensor.data()
        made.append(TensorHead(tensor.name(), tensor.datatype, tensor.dims, len(data)))
        parts.append(data)
    return tuple(made), parts


class ResponseChannel(Protocol):
    """Receives the responses of a sender."""

    @property
    def closed(self) -> bool: ...

    @property
    def forked(self) -> bool: ...

    def send(self, kind: int, number: int, header: object, tensors: Sequence[Data] = ()) -> None: ...

    def wait(self, ready: Callable[[], bool | None]) -> bool | None: ...

    def poll(self) -> None: ...


class BackendResponseSender:
    """Sends the responses to one request, from any thread, also after `execute` has returned.

    `send` waits while the client has not read the responses before.
    """

    def __init__(self, channel: ResponseChannel, number: int, requested: frozenset[str], *, decoupled: bool) -> None:
        self._channel = channel
        self.number = number
        self._requested = requested
        self._decoupled = decoupled
        self._lock = threading.Lock()
        self._sent = 0
        self.closed = False
        self.credit = messages.WINDOW
        """The number of responses that may be sent before the server permits more."""
        self.cancelled = False

    def send(self, response: BackendResponse | None = None, flags: int = 0) -> None:
        """Raises `TritonModelException` after the final response."""
        if flags not in (0, COMPLETE_FINAL):
            raise TritonModelException("Unable to send response. Unsupported flag provided.")
        if response is not None and not isinstance(response, BackendResponse):
            raise TypeError(f"a sender sends an InferenceResponse, not a {type(response).__name__}")
        if not flags and response is None:
            raise TritonModelException(
                "Inference Response object must be provided when the response flags is set to zero."
            )
        self.count(response, final=bool(flags))
        head, parts = self.head(response, final=bool(flags))
        if response is not None and not self._wait():
            return  # the reader has left
        self._channel.send(messages.RESPONSE, self.number, head, parts)

    def count(self, response: BackendResponse | None, *, final: bool) -> None:
        """Record a response. Raises `TritonModelException` if the request cannot have it."""
        with self._lock:
            if not self._decoupled:
                if response is not None and self._sent:
                    raise TritonModelException(
                        "Unable to send response. Non-decoupled model cannot send more than one response."
                    )
                if response is None and not self._sent:
                    raise TritonModelException(
                        "Unable to send response. Non-decoupled model cannot send complete final before sending a"
                        " response."
                    )
            if self.closed:
                raise TritonModelException("Unable to send response. Response sender has been closed.")
            self.closed = final
            self._sent += 1

    def head(self, response: BackendResponse | None, *, final: bool) -> tuple[ResponseHead, list[Data]]:
        """The response in the form of a message, with the requested outputs only."""
        if response is None:
            return ResponseHead(self.number, final, empty=True), []
        error = response.error()
        if error is not None:
            return ResponseHead(self.number, final, error=(error.code(), error.message())), []
        outputs, parts = heads([t for t in response.output_tensors() if t.name() in self._requested])
        return ResponseHead(self.number, final, outputs, parameters=response._parameters), parts

    def _wait(self) -> bool:
        """Wait until the response may be sent. False if the request was cancelled."""
        self.credit -= 1
        if self.credit < 0:
            self._channel.wait(lambda: True if self.credit >= 0 or self.cancelled else None)
        return not self.cancelled or self.closed

    def is_cancelled(self) -> bool:
        """Whether the client has disconnected."""
        if not self.cancelled:
            self._channel.poll()
        return self.cancelled

    def fail(self, code: int, message: str) -> None:
        """End the request with an error, unless it has ended."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
        self._channel.send(messages.RESPONSE, self.number, ResponseHead(self.number, True, error=(code, message)))

    def __del__(self) -> None:
        """End a request that the model has dropped without its final response."""
        if self.closed or self._channel.closed or self._channel.forked:
            return
        if self._decoupled or self._sent:
            self.closed = True
            head = ResponseHead(self.number, True, empty=True)
            self._channel.send(messages.RESPONSE, self.number, head)
        else:
            self.fail(INTERNAL, "the model has sent no response to this request")
