"""Answers over gRPC: typed errors for statuses, and streams of messages."""

from collections.abc import Callable, Mapping
from typing import NoReturn

from adapters.errors import (
    BackendError,
    CallerError,
    CapacityError,
    DeadlineError,
    InferenceError,
    TooLarge,
    Unsupported,
    UpstreamTimeout,
)
from adapters.http2.exchange import Exchange
from adapters.http2.status import Code, GrpcError, Reported, Unreadable
from adapters.requests import ModelRequest
from adapters.stream import Stream
from adapters.types import APP, DEVICE_MS, ERROR_CODE, Deadline, Form, Usage
from adapters.upstreams import failed_status
from adapters.wire import decoding, failure_text
from adapters.wire.decoding import whole_number
from adapters.wire.oip import responses as oip_responses

_CALLERS = frozenset({Code.INVALID_ARGUMENT, Code.OUT_OF_RANGE, Code.FAILED_PRECONDITION, Code.ALREADY_EXISTS})
FAILED = frozenset({Code.INTERNAL, Code.UNKNOWN})
OF_THE_KEY = frozenset({Code.UNAUTHENTICATED, Code.PERMISSION_DENIED})
CLOCKS = 0.1
"""Seconds by which a server's deadline may expire before the gateway's."""
_TOO_LARGE = "larger than max"
"""gRPC's text for a message that is too large; its status has other causes too."""


def refuse(request: ModelRequest, error: GrpcError) -> NoReturn:
    """Raise the typed error of a status other than OK."""
    message = (error.message or "The upstream refused the request.")[: oip_responses.MAX_MESSAGE]
    if isinstance(error, Unreadable):
        raise decoding.malformed() from None
    if (failure := failure_text.reported_failure(_trailer(error, ERROR_CODE), message, _pushback(error))) is not None:
        raise failure from None
    if error.code in _CALLERS or error.code in (Code.NOT_FOUND, Code.UNAVAILABLE):
        failed_status.check_ready(request, message)
    if error.code in _CALLERS or error.code == Code.UNIMPLEMENTED:
        failed_status.check_single(message)
    if error.code in _CALLERS:
        raise CallerError(message) from None
    if error.code == Code.UNIMPLEMENTED:
        raise Unsupported(message) from None
    if error.code == Code.NOT_FOUND and request.version:
        raise failed_status.no_such_version(request) from None
    if error.code == Code.RESOURCE_EXHAUSTED and _TOO_LARGE in message:
        raise TooLarge(message) from None
    if error.code in FAILED:
        failed_status.check_readable(request)
        if isinstance(error, Reported):
            raise failure_text.model_failure(error.message) from None
    if error.code == Code.UNAVAILABLE:
        raise CapacityError("The upstream is overloaded.", retry_after=_pushback(error)) from None
    if error.code == Code.RESOURCE_EXHAUSTED:
        raise CapacityError("The upstream is overloaded.", retry_after=_pushback(error), scope="unknown") from None
    raise _upstream_error(error.code) from None


def check_time(error: GrpcError, deadline: Deadline, now: float) -> None:
    """Raise `DeadlineError` if a server ended the call because the call's deadline, which it receives, had expired."""
    if error.code in (Code.CANCELLED, Code.DEADLINE_EXCEEDED) and now >= deadline.at - CLOCKS:
        raise DeadlineError("The request's deadline has passed.") from None


def _pushback(error: GrpcError) -> float | None:
    """Return the seconds after which gRPC's own clients may retry; None if the server sends no such trailer."""
    pushback = whole_number(_trailer(error, "grpc-retry-pushback-ms") or "")
    return None if pushback is None else pushback / 1000


def _trailer(error: GrpcError, name: str) -> str | None:
    value = dict(error.trailers).get(name)
    return value if isinstance(value, str) else None


def _upstream_error(code: int) -> InferenceError:
    if code in OF_THE_KEY:
        return BackendError("The upstream refused the gateway's own credential.", code="upstream_credential")
    if code == Code.NOT_FOUND:
        return BackendError("The upstream does not know the model.", code="upstream_model_not_found")
    if code == Code.DEADLINE_EXCEEDED:
        return UpstreamTimeout("The upstream timed out.")
    return BackendError("The upstream failed.")


def device_ms_of(trailers: Mapping[str, str]) -> float:
    return failed_status.device_ms(trailers.get(DEVICE_MS))


# A streamed response over gRPC: one piece for each message.

Refuse = Callable[[GrpcError], NoReturn]
"""Raises the typed error of a status other than OK."""


class GrpcStream(Stream):
    """The messages of a call. A status before the first message is raised unchanged: the adapter handles it."""

    __slots__ = ("_begun", "_exchange", "_refuse")

    def __init__(self, exchange: Exchange, refuse: Refuse, *, content_type: str, usage: Usage, form: Form) -> None:
        super().__init__(content_type=content_type, usage=usage, form=form)
        self._exchange = exchange
        self._refuse = refuse
        self._begun = False

    def _read(self, message: bytes) -> bytes:
        """Return the piece of a message. Raises the error of a message that reports a failure."""
        return message

    def _over(self) -> None:
        """Handle the end of the response."""

    async def _next(self, patience: float | None = None) -> bytes:
        try:
            message = await self._exchange.read()
        except GrpcError as error:
            if self._begun:
                self._refuse(error)
            raise
        if message is None:
            self._over()
            raise StopAsyncIteration
        piece = self._read(message)
        self._begun = True
        self.usage.bytes += len(piece)
        return piece

    async def _drop(self) -> None:
        self._exchange.cancel()


class AppMessages(GrpcStream):
    """A stream of an app's messages, one piece for each message that `read` returns."""

    __slots__ = ("_decode",)

    def __init__(
        self, exchange: Exchange, refuse: Refuse, decode: Callable[[bytes], bytes] = bytes, content_type: str = ""
    ) -> None:
        super().__init__(exchange, refuse, content_type=content_type, usage=Usage(exact=True), form=APP)
        self._decode = decode

    def _read(self, message: bytes) -> bytes:
        return self._decode(message)
