"""Endpoints that fail more than their peers, in a pool."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from adapters.call import Call
from adapters.errors import BackendError, CallerError, InferenceError
from adapters.fake import FakeAdapter, Script
from gateway.traffic.fleet.fleet import Fleet
from gateway.traffic.pool import Pool
from policies.health import Outliers
from tests.support.gateways import chat, config
from tests.support.pools import FOREVER


@asynccontextmanager
async def pool_of(*adapters: FakeAdapter, **outliers: Any) -> AsyncIterator[Pool]:
    """A fleet's pool, with fakes where its connections would be."""
    written = {
        "name": "main",
        "endpoints": [f"http://127.0.0.1:{i + 1}" for i in range(len(adapters))],
        "probe": None,
        "outliers": {"requests": 10, **outliers},
    }
    fleet = Fleet(Random(1), asyncio.get_running_loop().time)
    pool = fleet.commit(fleet.prepare(config(pools=[written])))["main"]
    for endpoint, adapter in zip(pool.endpoints, adapters, strict=True):
        endpoint.adapter = adapter
    yield pool
    await fleet.aclose()


def failing_every(count: int, error: InferenceError) -> FakeAdapter:
    return FakeAdapter(*[Script(fault=error if i % count == 0 else None) for i in range(1000)])


async def send(pool: Pool, times: int, gap: float = 0.05) -> int:
    """The requests that failed."""
    failed = 0
    for _ in range(times):
        try:
            await pool.call(chat(), Call(FOREVER))
        except InferenceError:
            failed += 1
        await asyncio.sleep(gap)
    return failed


async def test_an_endpoint_that_fails_every_third_is_ejected_and_returns() -> None:
    bad = failing_every(3, BackendError("x"))
    async with pool_of(bad, FakeAdapter(), FakeAdapter(), leave_for="10s") as pool:
        failed = await send(pool, 180)
        assert 3 <= failed <= 6  # ten of its requests were evidence enough
        assert len(bad.calls) < 20
        attempts = len(bad.calls)
        await asyncio.sleep(10)
        await send(pool, 9)
        assert len(bad.calls) > attempts


async def test_a_caller_s_own_errors_make_no_outlier() -> None:
    async with pool_of(failing_every(2, CallerError("x")), FakeAdapter(), FakeAdapter()) as pool:
        assert await send(pool, 200) > 10
        assert all(e.breaker.state(asyncio.get_running_loop().time()) == "closed" for e in pool.endpoints)


async def test_the_last_one_is_never_left_alone() -> None:
    async with pool_of(failing_every(2, BackendError("x"))) as pool:
        assert await send(pool, 100) == 50
        assert pool.endpoints[0].breaker.state(asyncio.get_running_loop().time()) == "closed"


async def test_counts_survive_a_reload(fleet: Fleet) -> None:
    written = {"name": "main", "endpoints": ["http://127.0.0.1:1"], "probe": None}

    def use(outliers: dict[str, Any] | None) -> Outliers | None:
        (endpoint,) = fleet.commit(fleet.prepare(config(pools=[{**written, "outliers": outliers}])))["main"].endpoints
        return endpoint.outliers

    first = use({})
    assert first is not None
    assert use({}) is first
    assert use({"failures": "50%"}) is not first
    assert use(None) is None
