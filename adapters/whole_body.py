"""The body of a response of a server that the configuration names, bounded."""

import aiohttp


async def whole_body(response: aiohttp.ClientResponse, most: int) -> bytes | None:
    """Read the body to its end; None above `most` bytes. `read(n)` of aiohttp returns the part that has arrived.

    Raises `aiohttp.ClientError`, `OSError` and `TimeoutError`.
    """
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > most:
            return None
    return bytes(body)
