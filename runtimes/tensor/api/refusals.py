"""Errors in the form that clients of the Open Inference Protocol expect: a status, and a message in the protocol's
shape."""

import math

from adapters import statuses
from adapters.errors import CallerError, CapacityError, InferenceError
from adapters.http1.message import NO_HEADERS, Headers, Response
from adapters.http2.status import Metadata
from adapters.types import DEVICE_MS, ERROR_CODE
from adapters.wire import compression
from adapters.wire.oip import responses as oip_responses

JSON = ("content-type", "application/json")
RETRY_SECONDS = 1.0


def not_implemented(message: str) -> CallerError:
    """The error for a part of the protocol that this server, or this model, does not support."""
    return CallerError(message, code="not_implemented")


def http_response(error: InferenceError) -> Response:
    """The status, and `{"error": …}`."""
    fields = [JSON, (ERROR_CODE, error.code)]
    if isinstance(error, CapacityError) and error.retry_after != math.inf:
        fields.append(("retry-after", str(max(1, math.ceil(_wait(error))))))
    if error.device_ms:
        fields.append((DEVICE_MS, f"{error.device_ms:.3f}"))
    if error.code == "unsupported_media_type":
        fields.append(("accept-encoding", compression.SUPPORTED))
    return Response(statuses.own_http_status(error), fields, oip_responses.encode_error(error.message))


def http_refusal(status: int, code: str, message: str, headers: Headers = NO_HEADERS) -> Response:
    """The response to bytes that are not a request."""
    del code  # the protocol has no place for it
    return Response(status, [JSON], oip_responses.encode_error(message))


def grpc_trailers(error: InferenceError) -> Metadata:
    """The code of the error, and the time until a retry in the form that gRPC's own retries read."""
    code = (ERROR_CODE, error.code)
    if not isinstance(error, CapacityError):
        return (code,)
    if error.retry_after == math.inf:
        return (code, ("grpc-retry-pushback-ms", "-1"))
    return (code, ("grpc-retry-pushback-ms", str(math.ceil(_wait(error) * 1000))))


def _wait(error: InferenceError) -> float:
    wait = error.retry_after
    return RETRY_SECONDS if wait is None or not math.isfinite(wait) else wait
