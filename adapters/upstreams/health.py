"""One health check over HTTP."""

from adapters.errors import BackendError
from adapters.http1.client import Client
from adapters.http1.message import Headers
from adapters.types import Deadline

MAX_BODY = 64 * 1024


async def look(client: Client, target: bytes, fields: bytes, timeout: float) -> tuple[int, Headers, bytes]:
    """Return the status, headers and body of a GET. Raises `InferenceError` if no response arrives."""
    deadline = Deadline(client.now() + timeout, timeout, timeout)
    response = await client.request(b"GET", target, fields, b"", deadline)
    try:
        return response.status, response.headers, await response.read(MAX_BODY)
    finally:
        response.close()


async def check(client: Client, target: bytes, fields: bytes, timeout: float) -> None:
    """Raise `InferenceError` unless the status of a GET is 200."""
    status, _, _ = await look(client, target, fields, timeout)
    if status != 200:
        raise ill(status)


async def reach(client: Client, target: bytes, fields: bytes, timeout: float) -> None:
    """Raise `InferenceError` if a server does not answer a GET, or with a failure of its own. Providers without a path
    for health checks refuse it with a status below 500."""
    status, _, _ = await look(client, target, fields, timeout)
    if status >= 500:
        raise ill(status)


def ill(status: int) -> BackendError:
    """Return the error of an endpoint with an unhealthy status."""
    return BackendError(f"The health check answered {status}.")
