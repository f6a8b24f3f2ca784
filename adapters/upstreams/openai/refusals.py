"""Typed errors for the error statuses of servers of OpenAI's API."""

from adapters.errors import BackendError, InferenceError
from adapters.http1.client import ClientResponse
from adapters.http1.message import Headers
from adapters.upstreams.failed_status import retry_after
from adapters.wire import error_table
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


def refusal(status: int, headers: Headers, error: wire.ErrorBody) -> InferenceError:
    """Return the typed error of a status other than 2xx, with the server's message."""
    return error_table.judged(status, error, retry_after(headers))
