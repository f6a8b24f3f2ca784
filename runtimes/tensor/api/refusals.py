"""Failures as clients of the Open Inference Protocol expect them: a status, and a message in the door's own shape."""

import math

from adapters.errors import (
    CallerError,
    CapacityError,
    ClientGone,
    DeadlineError,
    Forbidden,
    InferenceError,
    NotFound,
    TooLarge,
    TransportError,
)
from adapters.http1.message import Response
from adapters.http2.status import Code, Metadata
from adapters.types import ERROR_CODE
from adapters.wire import compression
from adapters.wire.oip import responses as oip_responses

# The first class that an error is an instance of decides: HTTP's status, gRPC's.
_TABLE: tuple[tuple[type[InferenceError], int, Code], ...] = (
    (NotFound, 404, Code.NOT_FOUND),
    (TooLarge, 413, Code.RESOURCE_EXHAUSTED),
    (CallerError, 400, Code.INVALID_ARGUMENT),
    (Forbidden, 403, Code.PERMISSION_DENIED),
    (CapacityError, 503, Code.UNAVAILABLE),
    (DeadlineError, 504, Code.DEADLINE_EXCEEDED),
    (TransportError, 503, Code.UNAVAILABLE),  # the copy that computed it is gone; the next one may answer
    (ClientGone, 499, Code.CANCELLED),
)
# Errors of one class that have a status of their own.
_OF_CODE = {
    "unknown_path": (404, Code.UNIMPLEMENTED),
    "method_not_allowed": (405, Code.UNIMPLEMENTED),
    "request_timeout": (408, Code.DEADLINE_EXCEEDED),
    "unsupported_media_type": (415, Code.UNIMPLEMENTED),
    "not_implemented": (501, Code.UNIMPLEMENTED),
}
JSON = ("content-type", "application/json")
RETRY_SECONDS = 1.0


def not_implemented(message: str) -> CallerError:
    """What the protocol has and this server, or this model, does not."""
    return CallerError(message, code="not_implemented")


def http_status(error: InferenceError) -> int:
    return _row(error)[0]


def http_response(error: InferenceError) -> Response:
    """The status, and `{"error": …}`."""
    fields = [JSON, (ERROR_CODE, error.code)]
    if isinstance(error, CapacityError) and error.retry_after != math.inf:
        fields.append(("retry-after", str(max(1, math.ceil(_wait(error))))))
    if error.code == "unsupported_media_type":
        fields.append(("accept-encoding", compression.SUPPORTED))
    return Response(http_status(error), fields, oip_responses.encode_error(error.message))


def http_refusal(status: int, code: str, message: str) -> Response:
    """For what never became a request."""
    del code  # the protocol has no place for it
    return Response(status, [JSON], oip_responses.encode_error(message))


def grpc_code(error: InferenceError) -> Code:
    return _row(error)[1]


def grpc_trailers(error: InferenceError) -> Metadata:
    """The code of the error, and when to try again, in the way that gRPC's own retries heed."""
    code = (ERROR_CODE, error.code)
    if not isinstance(error, CapacityError):
        return (code,)
    if error.retry_after == math.inf:
        return (code, ("grpc-retry-pushback-ms", "-1"))
    return (code, ("grpc-retry-pushback-ms", str(math.ceil(_wait(error) * 1000))))


def _wait(error: InferenceError) -> float:
    wait = error.retry_after
    return RETRY_SECONDS if wait is None or not math.isfinite(wait) else wait


def _row(error: InferenceError) -> tuple[int, Code]:
    if (known := _OF_CODE.get(error.code)) is not None:
        return known
    for kind, status, code in _TABLE:
        if isinstance(error, kind):
            return status, code
    return 500, Code.INTERNAL
