"""Health checks over a real socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from adapters.http1.client import Client
from adapters.http1.message import Response
from adapters.upstreams.openai.client import OpenAIAdapter
from config.schema.config import ProbeConfig
from gateway.traffic.endpoint import Endpoint
from gateway.traffic.fleet import member
from policies.breaker import Breaker
from tests.support.upstreams import Upstream, upstream

PROBE = ProbeConfig(ask="tiny", unhealthy_after=1, timeout="5s")


@asynccontextmanager
async def probed() -> AsyncIterator[tuple[Upstream, Endpoint]]:
    async with upstream() as up:
        adapter = OpenAIAdapter(Client(up.url))
        yield up, Endpoint("p/0", adapter, Breaker(5, 10.0))
        await adapter.aclose()


async def test_a_probe_with_a_request_detects_a_server_that_only_listens() -> None:
    async with probed() as (up, endpoint):
        await member.check(endpoint, PROBE)
        assert endpoint.health == "healthy"
        assert up.received[-1]["max_tokens"] == 1
        assert up.received[-1]["model"] == "tiny"
        up.behaviour = lambda body: asyncio.sleep(0, Response(500))
        await member.check(endpoint, ProbeConfig(unhealthy_after=1))
        assert endpoint.health == "healthy"
        await member.check(endpoint, PROBE)
        assert (endpoint.health, endpoint.in_flight) == ("unhealthy", 0)


@pytest.mark.parametrize("status", [429, 503])
async def test_one_that_is_too_busy_for_the_probe_is_not_ill(status: int) -> None:
    async with probed() as (up, endpoint):
        up.behaviour = lambda body: asyncio.sleep(0, Response(status))
        await member.check(endpoint, PROBE)
        assert endpoint.health == "healthy"


async def test_an_error_that_no_probe_expects_is_a_failed_check(monkeypatch: pytest.MonkeyPatch) -> None:
    async with probed() as (_, endpoint):

        async def probe(_: float) -> None:
            raise OverflowError("odd")

        monkeypatch.setattr(endpoint.adapter, "probe", probe)
        seen = []
        for _ in range(2):
            await member.check(endpoint, ProbeConfig(unhealthy_after=1, healthy_after=1))
            seen.append(endpoint.health)
            monkeypatch.undo()
        assert seen == ["unhealthy", "healthy"]


async def test_one_that_never_answers_the_question_is_ill() -> None:
    async with probed() as (up, endpoint):
        up.behaviour = lambda body: asyncio.sleep(60, Response(200))
        await member.check(endpoint, ProbeConfig(ask="tiny", unhealthy_after=1, timeout="100ms"))
        assert endpoint.health == "unhealthy"
