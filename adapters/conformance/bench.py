"""The adapters and impostors of one check."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, NamedTuple, NoReturn, Self
from urllib.parse import urlsplit

from adapters.base import Adapter, Answer
from adapters.call import Call
from adapters.conformance.impostor import Behaviour, Impostor, impostor
from adapters.conformance.subject import Subject
from adapters.errors import InferenceError
from adapters.http1.client import Client
from adapters.registry import Address, make
from adapters.requests import ModelRequest
from adapters.types import Deadline
from adapters.upstreams import dial

PATIENCE = 60.0
"""Seconds that a server has for any operation: it may be busy or loading."""
SHORT = 0.3


class Bench:
    """Creates adapters and impostors for one check and closes all of them after the check."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._ends = AsyncExitStack()
        self._adapter: Adapter | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._ends.aclose()

    @property
    def adapter(self) -> Adapter:
        """The adapter of the subject's server."""
        if self._adapter is None:
            self._adapter = self.at(self.subject.url)
        return self._adapter

    def at(self, url: str, **fields: Any) -> Adapter:
        """Create an adapter of a server at another address; `fields` replace fields of the pool."""
        pool = self.subject.pool.model_copy(update=fields)
        adapter = make(pool, self.address(url))
        self._ends.push_async_callback(adapter.aclose)
        return adapter

    def address(self, url: str) -> Address:
        """The address of a URL, with the TLS settings of the pool."""
        pool = self.subject.pool
        return Address(url, tls=dial.tls_context(pool, pool.protocol.name) if url.startswith("https://") else None)

    async def before(self, act: Behaviour, **fields: Any) -> tuple[Adapter, Impostor]:
        """Start an impostor in place of the server. Returns its adapter and the impostor."""
        stood = await self._ends.enter_async_context(impostor(act))
        return self.at(stood.url, **fields), stood

    async def call(self, request: ModelRequest) -> Answer:
        """Call the subject. The answer is closed after the check."""
        answer = await self.adapter.call(request, within())
        self._ends.push_async_callback(answer.aclose)
        return answer

    async def pieces(self, answer: Answer) -> list[bytes]:
        """Read a stream to its end."""
        if answer.body is not None:
            fail("was answered whole, though a stream was requested")
        return [piece async for piece in answer]


def within(seconds: float = PATIENCE, first_byte: float = PATIENCE) -> Call:
    """A call with a deadline in `seconds` from now."""
    return Call(Deadline(asyncio.get_running_loop().time() + seconds, first_byte, PATIENCE))


Run = Callable[[Bench], Awaitable[None]]


class Check(NamedTuple):
    """A check of one feature, with the reason why the feature matters. `run` raises for a violation."""

    feature: str
    why: str
    run: Run
    absence: Run | None = None
    """Replaces `run` if the protocol lacks the feature: checks that the adapter rejects requests for it."""


# Reads the metrics of a server in Prometheus' text format.


async def metrics_page(url: str) -> bytes:
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
        lines = (await metrics_page(url)).decode().splitlines()
        values = [line.rpartition(" ")[2] for line in lines if line.partition("{")[0].partition(" ")[0] == name]
        if not values:
            fail(f"the metrics hold no {name}")
        return sum(map(float, values))

    return read


class Nonconforming(Exception):
    """A violation of an adapter or its server, described in a sentence."""


def fail(why: str) -> NoReturn:
    raise Nonconforming(why)


async def refused(awaited: Awaitable[object], *kinds: type[InferenceError], code: str = "") -> InferenceError:
    """Return the error of a failed call. Raises `Nonconforming` unless it has one of `kinds`, or the given `code`."""
    try:
        await awaited
    except InferenceError as error:
        if isinstance(error, kinds) or (code and error.code == code):
            return error
        expected = " or ".join(kind.__name__ for kind in kinds)
        fail(f"expected {expected}, got {type(error).__name__}: {error.message}")
    fail("was answered")
