"""The adapters and impostors of one check."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any, Self

from adapters.base import Adapter, Answer
from adapters.call import Call
from adapters.conformance.impostor import Behaviour, Impostor, impostor
from adapters.conformance.nonconforming import fail
from adapters.conformance.subject import Subject
from adapters.registry import Address, make
from adapters.requests import ModelRequest
from adapters.types import Deadline
from adapters.upstreams import tls

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
        return Address(url, tls=tls.context(pool, pool.protocol.name) if url.startswith("https://") else None)

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
