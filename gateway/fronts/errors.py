"""HTTP responses for errors in the shape of each front, with the headers that advise a client on a retry."""

import math

from adapters import statuses
from adapters.errors import UPGRADE_REQUIRED, CapacityError, CredentialError, InferenceError
from adapters.http1.message import NO_HEADERS, Headers, Response
from adapters.types import ERROR_CODE
from adapters.wire import torchserve
from adapters.wire.anthropic import errors as anthropic
from adapters.wire.oip import responses as oip_responses
from adapters.wire.openai import chat as wire

OVERLOADED = 529
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    OVERLOADED: "overloaded_error",
}


def openai_body(error: InferenceError) -> bytes:
    """OpenAI's error object, with all four keys."""
    return wire.encode_error(error, statuses.openai_type(error))


def openai_response(error: InferenceError, headers: list[tuple[str, str]]) -> Response:
    """OpenAI's error response, with `headers` and the headers that the error requires."""
    fields = [("content-type", "application/json"), *headers, *advice(error)]
    return Response(statuses.http_status(error), fields, openai_body(error))


def oip_response(error: InferenceError, headers: list[tuple[str, str]]) -> Response:
    """The error response of the fronts of tensors: the same for the Open Inference Protocol, KServe and TensorFlow
    Serving."""
    fields = [("content-type", "application/json"), *headers, *advice(error), (ERROR_CODE, error.code)]
    return Response(statuses.http_status(error), fields, oip_responses.encode_error(error.message))


def app_response(error: InferenceError, headers: list[tuple[str, str]]) -> Response:
    """The error response for apps, in TorchServe's form, as TorchServe's clients use this front too."""
    fields = [("content-type", "application/json"), *headers, *advice(error), (ERROR_CODE, error.code)]
    status = statuses.http_status(error)
    return Response(status, fields, torchserve.encode_error(status, error.code, error.message))


def anthropic_type(status: int) -> str:
    """Anthropic's error type for a status."""
    return _ANTHROPIC_TYPES.get(status) or ("api_error" if status >= 500 else "invalid_request_error")


def anthropic_response(error: InferenceError, headers: list[tuple[str, str]]) -> Response:
    """Anthropic's error response. An overload has a separate status."""
    status = statuses.http_status(error)
    if status == 503:
        status = OVERLOADED
    body = anthropic.encode_error(error, anthropic_type(status), dict(headers).get("request-id"))
    return Response(status, [("content-type", "application/json"), *headers, *advice(error)], body)


def openai_refusal(status: int, code: str, message: str, headers: Headers = NO_HEADERS) -> Response:
    """The rejection of a request that reaches no front."""
    error = InferenceError(message, code=code)
    type_ = "server_error" if status >= 500 else "invalid_request_error"
    return Response(status, [("content-type", "application/json")], wire.encode_error(error, type_))


def advice(error: InferenceError) -> list[tuple[str, str]]:
    """Headers that advise a client whether and when to retry.

    The gateway has already retried a failed upstream; further retries by clients would multiply the load on a
    failing server.
    """
    if isinstance(error, CredentialError):
        return [("www-authenticate", "Bearer"), ("x-should-retry", "false")]
    if error.code == UPGRADE_REQUIRED:
        return [("upgrade", "HTTP/1.1"), ("x-should-retry", "false")]  # RFC 9110 15.5.22
    if not isinstance(error, CapacityError):
        return [("x-should-retry", "false")]
    wait = 1.0 if error.retry_after is None else error.retry_after
    if not math.isfinite(wait):
        return [("x-should-retry", "false")]
    return [
        ("retry-after", str(max(1, math.ceil(wait)))),
        ("retry-after-ms", str(max(1, math.ceil(wait * 1000)))),
        ("x-should-retry", "true"),
    ]
