"""One look at a server's health, over HTTP."""

from adapters.errors import BackendError
from adapters.http1.client import Client
from adapters.http1.message import Headers
from adapters.types import Deadline

MAX_BODY = 64 * 1024


async def look(client: Client, target: bytes, fields: bytes, timeout: float) -> tuple[int, Headers, bytes]:
    """What a GET is answered with. Raises `InferenceError` where it is not answered."""
    deadline = Deadline(client.now() + timeout, timeout, timeout)
    response = await client.request(b"GET", target, fields, b"", deadline)
    try:
        return response.status, response.headers, await response.read(MAX_BODY)
    finally:
        response.close()


async def check(client: Client, target: bytes, fields: bytes, timeout: float) -> None:
    """Return when a GET is answered with 200; raise `InferenceError` when it is not."""
    status, _, _ = await look(client, target, fields, timeout)
    if status != 200:
        raise ill(status)


def ill(status: int) -> BackendError:
    """Of an answer that is no sign of health."""
    return BackendError(f"The health check answered {status}.")
