"""Reads the metrics of a server in Prometheus' text format."""

from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from adapters.conformance.bench import within
from adapters.conformance.nonconforming import fail
from adapters.http1.client import Client


async def page(url: str) -> bytes:
    """Fetch a metrics page. Raises `Nonconforming` for any status but 200."""
    parts = urlsplit(url)
    client = Client(f"{parts.scheme}://{parts.netloc}")
    try:
        response = await client.request(b"GET", parts.path.encode(), b"", b"", within().deadline)
        body = await response.read()
    finally:
        await client.aclose()
    if response.status != 200:
        fail(f"the metrics are answered with status {response.status}")
    return body


def gauge(url: str, name: str) -> Callable[[], Awaitable[float]]:
    """A function that returns one metric, summed over all of its labels."""

    async def read() -> float:
        lines = (await page(url)).decode().splitlines()
        values = [line.rpartition(" ")[2] for line in lines if line.partition("{")[0].partition(" ")[0] == name]
        if not values:
            fail(f"the metrics hold no {name}")
        return sum(map(float, values))

    return read
