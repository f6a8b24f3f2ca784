"""Marks of caches by every door over a pool of Gemini: reports, prices, and a cache that is lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from adapters.registry import Address, make
from adapters.upstreams.gemini.client import GeminiAdapter
from tests.support.doors import Before, Door, door
from tests.support.gateways import config
from tests.support.providers.gemini import KEY, MODEL, Gemini, gemini

LONG = "words " * 1500
MARK: Any = {"cache_control": {"type": "ephemeral"}}
SYSTEM: Any = [{"type": "text", "text": LONG, **MARK}]
HI: Any = [{"role": "user", "content": "hi"}]


class Opened:
    """A gateway before Google's stand-in."""

    def __init__(self, d: Door, server: Gemini, adapter: GeminiAdapter) -> None:
        self.d = d
        self.server = server
        self._adapter = adapter

    async def settled(self) -> None:
        """Wait for the end of what requests have begun in the background."""
        assert self._adapter.caches is not None
        await asyncio.gather(*self._adapter.caches._tasks.values())

    async def message(self, system: Any = SYSTEM) -> str | None:
        """Send a message. Returns the fields that were ignored."""
        create = self.d.anthropic.messages.with_raw_response.create
        answer = await create(model="chat", max_tokens=9, system=system, messages=HI)
        await self.settled()
        return answer.headers.get("x-headrace-ignored")

    async def chat(self) -> str | None:
        """The same by a chat."""
        messages: Any = [{"role": "system", "content": LONG, **MARK}, *HI]
        answer = await self.d.openai.chat.completions.with_raw_response.create(model="chat", messages=messages)
        await self.settled()
        return answer.headers.get("x-headrace-ignored")


@asynccontextmanager
async def opened() -> AsyncIterator[Opened]:
    async with gemini() as server:
        pools: Any = [{"name": "main", "endpoints": [server.url], "key": KEY, "model": MODEL, "protocol": "gemini"}]
        adapter = make(config(pools=pools).pools[0], Address(server.url))
        assert isinstance(adapter, GeminiAdapter)
        prices = {"prompt": "1000 usd/1M", "completion": "1000 usd/1M", "cached": "100 usd/1M"}
        models: Any = [{"name": "chat", "routes": [{"to": "main"}], "price": prices}]
        async with door(Before(adapter), pools=pools, models=models) as d:
            yield Opened(d, server, adapter)
        await adapter.aclose()


@pytest.mark.parametrize("by", ["message", "chat"])
async def test_marks_become_a_cache_and_its_tokens_have_their_own_price(by: str) -> None:
    async with opened() as o:
        for _ in range(3):
            assert await getattr(o, by)() is None
        first, _, last = o.d.rig.log.records
        assert o.server.bodies[2]["cachedContent"] == "cachedContents/c0"
        assert last.usage is not None
        assert first.usage is not None
        assert (last.usage.cached_tokens, last.usage.prompt_tokens) == (1500, first.usage.prompt_tokens)
        assert last.cost is not None
        assert first.cost is not None
        assert last.cost.picos == first.cost.picos - 1460 * 900 * 10**6  # the stand-in counts 40 as cached by itself


async def test_marks_that_have_no_cache_are_reported() -> None:
    async with opened() as o:
        assert await o.message([{"type": "text", "text": "Be kind.", **MARK}]) == "cache_control"
        assert await o.message("Be kind.") is None


async def test_a_lost_cache_opens_no_breaker() -> None:
    async with opened() as o:
        for _ in range(2):
            await o.message()
        for _ in range(12):
            o.server.caches.entries.clear()
            await o.message()
        assert all(record.status == 200 for record in o.d.rig.log.records)
        assert [len(record.trace.attempts) for record in o.d.rig.log.records] == [1] * 14
