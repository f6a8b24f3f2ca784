"""Typed errors for the error statuses of servers of OpenAI's API."""

from adapters.errors import BackendError, CallerError, ContextTooLong, InferenceError, TooLarge
from adapters.http1.client import ClientResponse
from adapters.http1.message import Headers
from adapters.requests import ModelRequest
from adapters.upstreams.failed_status import CALLER_STATUS, upstream_error
from adapters.wire.openai import chat as wire

MAX_ERROR_BODY = 64 * 1024


async def error_of(response: ClientResponse) -> wire.ErrorBody:
    """Decode the error body of a response, and close the response."""
    try:
        return wire.decode_error(await response.read(MAX_ERROR_BODY))
    except BackendError:
        return wire.ErrorBody()  # the body is unreadable; the status is sufficient
    finally:
        response.close()


def judged(_: ModelRequest, status: int, headers: Headers, body: bytes) -> InferenceError:
    """Return the typed error of a forwarded call: the client receives no error body of the server."""
    return refusal(status, headers, wire.decode_error(body[:MAX_ERROR_BODY]))


def about_the_model(error: wire.ErrorBody) -> bool:
    """Whether a 404 concerns the name of the model instead of the path."""
    return error.code == "model_not_found" or error.param == "model" or "model" in (error.message or "").lower()


def refusal(status: int, headers: Headers, error: wire.ErrorBody) -> InferenceError:
    """Return the typed error of a status other than 200, with the server's message."""
    if status not in CALLER_STATUS:
        return upstream_error(status, headers, error.message)
    message = (error.message or "The upstream refused the request.")[: wire.MAX_MESSAGE]
    if wire.is_too_long(error):
        return ContextTooLong(message, param=error.param)
    kind = TooLarge if status == 413 else CallerError
    return kind(message, param=error.param, code=error.code if isinstance(error.code, str) else None)
