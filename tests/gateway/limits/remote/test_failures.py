import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from adapters.errors import LimitExceeded
from config.schema.money import PICOS
from gateway.limits.drawn import Draw, drawn
from gateway.limits.ledger import Reservation
from gateway.limits.mutexes import LimitsUnavailable
from tests.gateway.limits.remote.gateways import Gateway, gateways
from tests.gateway.limits.timed_ledger import tenant
from tests.support.redis import RedisServer, redis_server

QUICK = 0.2


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[RedisServer]:
    async with redis_server(tmp_path, keep=True) as server:
        yield server


def limits(count: str, **more: Any) -> dict[str, Any]:
    return {"tokens": "1000/month", "requests": "100/month", "count": count, **more}


@pytest.mark.processes
@pytest.mark.parametrize("count", ["exact", "leased"])
async def test_usage_during_an_outage_of_redis_is_charged_after_it(redis: RedisServer, count: str) -> None:
    async with gateways(2, redis, limits(count)) as (one, two):
        held = await one.reserve(100)
        await asyncio.sleep(0.1)
        redis.kill()
        await one.until(up=False)
        for _ in range(5):
            one.settle(await one.reserve(50), 20)
        one.settle(held, 40)
        await redis.start(keep=True)
        await one.until(up=True)
        await two.until(up=True)
        await one.refreshed()
        one.ledger.accounts["acme"].limits[0].configure(one.allowance.config, one.clock(), time.time())
        async with asyncio.timeout(300):
            while count == "leased" and (await one.row())["l1"] < 859:
                await asyncio.sleep(0.1)  # until idle leases are empty
        row = await two.row()
        assert row["l1"] == pytest.approx(1000 - 100 - 40, abs=0.1)
        assert row["l0"] == pytest.approx(100 - 6, abs=0.1)


@pytest.mark.processes
async def test_a_loss_of_redis_is_logged_once_and_so_is_its_return(
    redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "gateway.limits.remote.link")
    async with gateways(1, redis, limits("exact")) as (one,):
        await one.until(up=True)
        assert caplog.messages == []
        for losses in (1, 2):
            redis.kill()
            await one.until(up=False)
            tries = {one.redis.link.next_try}
            while len(tries) < 3:
                await asyncio.sleep(0.01)
                tries.add(one.redis.link.next_try)
            await redis.start(keep=True)
            await one.until(up=True)
            assert len(caplog.messages) == 2 * losses
            assert caplog.messages[-2].startswith("Redis is unavailable (")
            assert caplog.messages[-1].startswith("Redis responds again")
    assert len(caplog.messages) == 4


@pytest.mark.processes
@pytest.mark.parametrize("count", ["exact", "leased"])
async def test_while_redis_is_away_each_gateway_holds_the_limit_by_itself(redis: RedisServer, count: str) -> None:
    async with gateways(1, redis, limits(count)) as (one,):
        one.settle(await one.reserve(1), 1)
        await one.refreshed()
        redis.kill()
        await one.until(up=False)
        admitted = 0
        for _ in range(200):
            try:
                one.settle(await one.reserve(1), 1)
                admitted += 1
            except LimitExceeded:
                break
        assert 90 <= admitted <= 100


@pytest.mark.processes
@pytest.mark.parametrize("count", ["exact", "leased"])
async def test_a_limit_that_must_not_be_passed_is_refused_at_once(redis: RedisServer, count: str) -> None:
    refuse = [limits(count, on_redis_failure="refuse"), {"requests": "5/month"}]
    async with gateways(1, redis, refuse) as (one,):
        redis.kill()
        await one.until(up=False)
        for _ in range(20):  # more than the host's own limit, which stays uncharged
            with pytest.raises(LimitsUnavailable) as refused:
                await one.reserve()
            assert refused.value.retry_after is not None
            assert refused.value.retry_after >= 1
        await redis.start(keep=True)
        await one.until(up=True)
        for _ in range(5):
            await one.reserve()


@pytest.mark.processes
@pytest.mark.parametrize("policy", ["allow", "refuse"])
async def test_a_redis_that_stops_answering_is_waited_for_once(redis: RedisServer, policy: str) -> None:
    async with gateways(2, redis, limits("exact", on_redis_failure=policy), timeout=QUICK) as (one, two):
        redis.stop()
        reservations = [asyncio.create_task(one.reserve(10)) for _ in range(20)]
        async with asyncio.timeout(300):
            answers = await asyncio.gather(*reservations, return_exceptions=True)
        granted = [answer for answer in answers if not isinstance(answer, BaseException)]
        assert len(granted) == (20 if policy == "allow" else 0)
        assert all(isinstance(a, LimitsUnavailable) for a in answers if isinstance(a, BaseException))
        assert not one.redis.up  # a later request does not wait
        for held in granted:
            one.settle(held, 3)
        redis.go_on()
        await two.until(up=True)
        row = await one.row()
        assert row["n"] == 0  # what was sent and never answered is undone, whenever it was carried out
        assert row["l1"] == pytest.approx(1000 - 3 * len(granted), abs=0.1)
        assert row["l0"] == pytest.approx(100 - len(granted), abs=0.1)


class Imposter:
    """A server in Redis' place that counts its connections and replies with garbage."""

    def __init__(self, garbage: bytes) -> None:
        self._garbage = garbage
        self.connections = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while await reader.read(65536):
            writer.write(self._garbage)
        writer.close()


@pytest.mark.parametrize(
    "garbage", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"+OK\r\n", b"*-7\r\n", b"$99999999\r\nx", b"\x00"]
)
async def test_garbage_in_its_place_is_no_answer_and_no_storm(tmp_path: Path, garbage: bytes) -> None:
    server = RedisServer(tmp_path)
    imposter = Imposter(garbage)
    listening = await asyncio.start_unix_server(imposter, server.path)
    one = Gateway(server, limits("exact"), timeout=QUICK)
    for _ in range(100):
        one.settle(await one.reserve(0), 0)
        await asyncio.sleep(0.01)
    assert imposter.connections <= 6
    assert not one.redis.up
    assert one.redis.describe()["error"]
    await one.die()
    listening.close()
    await listening.wait_closed()


async def granted(gateway: Gateway) -> Reservation:
    """A reservation, once the lease has it."""
    while True:
        try:
            return await gateway.reserve(10, usd=3)
        except LimitExceeded:
            await asyncio.sleep(0.05)


@pytest.mark.processes
@pytest.mark.parametrize("count", ["exact", "leased"])
async def test_a_redis_that_lost_its_data_begins_with_the_recorded_usage(tmp_path: Path, count: str) -> None:
    amounts = {"spend": "100 usd/month", "requests": "100/day", "tokens": "1000/min", "count": count}
    async with redis_server(tmp_path) as server, gateways(2, server, amounts) as (one, two):
        draws: list[Draw] = []
        for each in (one, two):
            each.ledger.drawn.is_recorded = True
            each.ledger.configure([tenant(amounts)], each.clock())
            for _ in range(10):
                held = await granted(each)
                each.settle(held, 10, usd=3)
                draws += held.draws
        for each in (one, two):
            await each.refreshed()
        server.kill()
        for each in (one, two):
            await each.until(up=False)
            each.ledger.drawn.put(drawn(draws), each.clock(), time.time())
        await server.start()
        for each in (one, two):
            await each.until(up=True)
        admitted = refused = 0
        while refused < 20:  # a lease may be empty for a moment
            try:
                one.settle(await one.reserve(1, usd=3), 1, usd=3)
                admitted, refused = admitted + 1, 0
            except LimitExceeded:
                refused += 1
                await asyncio.sleep(0.05)
        if count == "exact":
            assert admitted == 13  # of the 40 usd that 20 requests left
            row = await two.row()
            assert row["umonth"] == 99 * PICOS
            assert row["l0"] == pytest.approx(100 - 20 - 13, abs=0.1)
        else:  # a lease, and the debt of another one, are a twentieth each
            assert 30 <= 3 * admitted <= 40 + 2 * 5 + 3


@pytest.mark.processes
async def test_requests_of_a_killed_gateway_are_charged_by_their_records(redis: RedisServer) -> None:
    """It was killed after the end of a request, and before Redis had that."""
    amounts = {"spend": "9 usd/month", "count": "exact", "on_redis_failure": "refuse"}
    async with gateways(2, redis, amounts) as (one, two):
        for each in (one, two):
            each.ledger.drawn.is_recorded = True
            each.ledger.configure([tenant(amounts)], each.clock())
        held = await one.reserve(usd=3)
        await one.die()
        one.settle(held, usd=2)
        two.ledger.drawn.put(drawn(held.draws), two.clock(), time.time())
        assert (await two.row())["umonth"] == 3 * PICOS  # what it may still use is reserved
        client = Redis.from_url(redis.url)
        await client.zadd("{headrace}:gateways", {one.redis.name: 0.0})
        await client.aclose()
        async with asyncio.timeout(300):
            while (await two.row()).get("umonth") != 2 * PICOS:
                two.ledger.drawn.put([], two.clock(), time.time())
                await asyncio.sleep(0.05)
        two.settle(await two.reserve(usd=7), usd=7)
        with pytest.raises(LimitExceeded):
            await two.reserve(usd=1)
