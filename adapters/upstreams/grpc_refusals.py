"""Typed errors for statuses of gRPC."""

from collections.abc import Mapping
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
from adapters.http2.status import Code, GrpcError, Reported, Unreadable
from adapters.requests import ModelRequest
from adapters.types import DEVICE_MS, ERROR_CODE, Deadline
from adapters.upstreams.oip import refusals as oip_refusals
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
        oip_refusals.check_ready(request, message)
    if error.code in _CALLERS or error.code == Code.UNIMPLEMENTED:
        oip_refusals.check_single(message)
    if error.code in _CALLERS:
        raise CallerError(message) from None
    if error.code == Code.UNIMPLEMENTED:
        raise Unsupported(message) from None
    if error.code == Code.NOT_FOUND and request.version:
        raise oip_refusals.no_such_version(request) from None
    if error.code == Code.RESOURCE_EXHAUSTED and _TOO_LARGE in message:
        raise TooLarge(message) from None
    if error.code in FAILED:
        oip_refusals.check_readable(request)
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
    return oip_refusals.device_ms(trailers.get(DEVICE_MS))
