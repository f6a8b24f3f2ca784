import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from adapters.errors import LimitExceeded
from gateway.limits.remote import redis_ledger as module
from tests.gateway.limits.remote.gateways import Gateway, gateways
from tests.support.redis import RedisServer, redis_server

pytestmark = pytest.mark.processes

ALL = {"requests": "9/month", "tokens": "1000/month", "spend": "9 usd/month", "concurrency": 4, "count": "exact"}


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[RedisServer]:
    async with redis_server(tmp_path) as server:
        yield server


async def test_three_gateways_admit_exactly_the_limit(redis: RedisServer) -> None:
    limits = [{"requests": "1000/month", "count": "exact"}, {"requests": "5000/month", "per": "user", "count": "exact"}]
    async with gateways(3, redis, limits) as all_:

        async def send(i: int) -> int:
            try:
                held = await all_[i % 3].reserve(user=f"u{i % 7}")
            except LimitExceeded:
                return 0
            all_[i % 3].settle(held, 1)
            return 1

        assert sum(await asyncio.gather(*map(send, range(10_000)))) == 1000


async def test_a_reservation_of_one_gateway_counts_for_the_other_until_settled(redis: RedisServer) -> None:
    async with gateways(2, redis, ALL) as (one, two):
        held = await one.reserve(400, usd=5)
        with pytest.raises(LimitExceeded, match="tokens: 1000/month for the whole tenant") as refused:
            await two.reserve(601)
        assert refused.value.limit == "tokens"
        assert two.ledger.accounts["acme"].in_flight == 0
        one.settle(held, 100, usd=1)
        row = await one.row()
        assert row["n"] == 0
        assert row["l0"] == pytest.approx(8, abs=0.01)
        assert row["l1"] == pytest.approx(900, abs=0.1)
        assert row["umonth"] == 10**12
        await two.reserve(900, usd=8)
        assert two.allowance.remaining(two.clock(), 0.0)["tokens"] == pytest.approx(0, abs=0.1)


async def test_all_of_a_requests_limits_are_taken_or_none(redis: RedisServer) -> None:
    limits = [ALL, {"tokens": "100/month", "per": "key", "count": "exact"}, {"requests": "1/month", "per": "user"}]
    async with gateways(1, redis, limits) as (one,):
        with pytest.raises(LimitExceeded, match="each key"):
            await one.reserve(50, user="u") and await one.reserve(60, user="v")
        row = await one.row()
        assert row["l0"] == pytest.approx(8, abs=0.01)
        await one.reserve(1, user="v")  # the refusal by Redis left no charge on the host's own limit
        with pytest.raises(LimitExceeded, match="each user"):
            await one.reserve(1, user="v")
        assert (await one.row())["n"] == 2


async def test_shadow_is_counted_and_refuses_nothing(redis: RedisServer) -> None:
    limits = [{"requests": "5/month", "count": "exact"}, {"tokens": "10/month", "count": "exact", "enforce": "shadow"}]
    async with gateways(1, redis, limits) as (one,):
        assert (await one.reserve(10)).shadowed == ()
        assert (await one.reserve(10)).shadowed == (("tokens", "tenant"),)


async def test_a_request_that_is_given_up_while_it_waits_holds_nothing(redis: RedisServer) -> None:
    async with gateways(2, redis, ALL) as (one, _):
        redis.stop()
        waiting = asyncio.create_task(one.reserve(400))
        await asyncio.sleep(0.05)
        waiting.cancel()
        await asyncio.wait([waiting])
        redis.go_on()
        row = await one.row()
        assert row["n"] == 0
        assert row["l1"] == pytest.approx(1000)
        assert one.ledger.accounts["acme"].in_flight == 0


async def test_the_reservations_of_a_dead_gateway_are_released(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEASE", 0.5)
    async with gateways(2, redis, ALL) as (one, two):
        for _ in range(4):
            await one.reserve(100, usd=1)
        with pytest.raises(LimitExceeded, match="at once"):
            await two.reserve()
        await one.die()
        async with asyncio.timeout(300):
            while (await two.row())["n"]:
                await asyncio.sleep(0.05)
        row = await two.row()
        assert row["l1"] == pytest.approx(1000)
        assert row["umonth"] == 0


async def test_a_gateway_that_was_taken_for_dead_begins_anew(redis: RedisServer) -> None:
    async with gateways(1, redis, ALL) as (one,):
        held = await one.reserve(100)
        client = Redis.from_url(redis.url)
        await client.zadd("{headrace}:gateways", {one.redis.name: 0.0})
        await client.aclose()
        other = Gateway(redis, ALL)
        await other.until(up=True)
        assert (await other.row())["n"] == 0
        one.settle(held, 30)  # no longer held: the truth is charged alone
        assert (await one.row())["l1"] == pytest.approx(970, abs=0.1)
        await one.reserve(10)
        await other.die()


async def test_a_gateway_that_ends_gives_back_at_once(redis: RedisServer) -> None:
    async with gateways(2, redis, ALL) as (one, two):
        await one.reserve(100)
        await one.aclose()
        assert (await two.row())["n"] == 0


async def test_every_key_expires(redis: RedisServer) -> None:
    async with gateways(1, redis, [ALL, {"requests": "5/s", "per": "user", "count": "exact"}]) as (one,):
        await one.reserve(user="u")
        client = Redis.from_url(redis.url)
        keys = await client.keys()
        assert len(keys) == 4
        assert min([await client.ttl(key) for key in keys]) > 0
        await client.aclose()


async def test_a_script_that_was_flushed_is_loaded_again(redis: RedisServer) -> None:
    async with gateways(1, redis, ALL) as (one,):
        client = Redis.from_url(redis.url)
        await client.script_flush()
        await client.aclose()
        held = await one.reserve(10)  # counted here
        one.settle(held, 10)
        await one.until(up=True)
        assert (await one.row())["l1"] == pytest.approx(990, abs=0.1)


async def test_a_models_limit_is_shared_by_all_tenants(redis: RedisServer) -> None:
    model = {"name": "chat", "routes": [{"to": "p"}], "limits": {"concurrency": 1, "count": "exact"}}
    async with gateways(2, redis, {}, models=[model]) as (one, two):
        held = await one.reserve()
        with pytest.raises(LimitExceeded, match=r"The model chat is over its .* at once: 1 for all tenants"):
            await two.reserve()
        await two.reserve(model="other")
        one.settle(held)
        await one.refreshed()
        await two.reserve()
