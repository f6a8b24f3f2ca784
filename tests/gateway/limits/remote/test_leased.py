import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import LimitExceeded
from config.schema.limits import LimitsConfig
from gateway.limits.ledger import Reservation
from gateway.limits.remote import redis_ledger as module
from gateway.limits.remote.leased import LeasedAllowance
from policies.limits.budget import Lease
from tests.gateway.limits.remote.gateways import Gateway, gateways
from tests.support.redis import RedisServer, redis_server


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[RedisServer]:
    async with redis_server(tmp_path) as server:
        yield server


@pytest.mark.processes
async def test_three_gateways_admit_the_limit_within_the_bound(redis: RedisServer) -> None:
    async with gateways(3, redis, {"requests": "1000/month", "count": "leased"}) as all_:
        assert not all_[0].ledger.awaited  # no request waits for Redis
        admitted = 0
        for round_ in range(100):
            for i in range(100):
                one = all_[(i + round_) % 3]
                try:
                    one.settle(await one.reserve(), 1)
                    admitted += 1
                except LimitExceeded:
                    pass
            await asyncio.sleep(0.005)
        assert 1000 - 3 * 50 <= admitted <= 1000 + 3 * 50


@pytest.mark.processes
async def test_the_first_request_is_admitted_before_any_call_to_redis(redis: RedisServer) -> None:
    async with gateways(1, redis, {"requests": "1/month", "tokens": "100/month", "count": "leased"}) as (one,):
        one.settle(await one.reserve(80), 80)
        with pytest.raises(LimitExceeded):
            one.settle(await one.reserve(80), 80)
        async with asyncio.timeout(300):
            while (await one.row()).get("l1", 100) > 20.5:
                await asyncio.sleep(0.02)


@pytest.mark.processes
async def test_unneeded_leases_are_returned(redis: RedisServer) -> None:
    limits = {"tokens": "1000/month", "spend": "20 usd/month", "concurrency": 40, "count": "leased"}
    async with gateways(2, redis, limits) as (one, _):
        one.settle(await one.reserve(10, usd=1), 10, usd=1)
        async with asyncio.timeout(300):
            while (row := await one.row()).get("umonth") != 10**12 or row["n"] or row["l1"] < 989:
                await asyncio.sleep(0.05)
        assert row["l1"] == pytest.approx(990, abs=0.1)
        assert one.allowance.is_idle(0.0, 0.0)


@pytest.mark.processes
async def test_places_are_shared_within_the_bound_and_come_back_from_the_dead(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEASE", 0.5)
    async with gateways(2, redis, {"concurrency": 40, "count": "leased"}) as (one, two):

        async def fill(gateway: Gateway) -> list[Reservation]:
            held = []
            for _ in range(100):
                try:
                    held.append(await gateway.reserve())
                except LimitExceeded:
                    await asyncio.sleep(0.005)
            return held

        mine, others = await fill(one), await fill(two)
        assert 40 - 2 * 2 <= len(mine) + len(others) <= 40 + 2 * 2
        await one.die()
        async with asyncio.timeout(300):
            while len(others) < 36:
                others += await fill(two)
        assert len(others) <= 42
        for held in others:
            two.settle(held)
        assert two.ledger.accounts["acme"].in_flight == 0


@given(st.integers(1, 500), st.lists(st.tuples(st.integers(0, 300), st.booleans(), st.integers(0, 300)), max_size=60))
def test_a_lease_never_exceeds_its_part_or_one_request(amount: int, steps: list[tuple[int, bool, int]]) -> None:
    """Each step takes n, or fills the lease from a shared amount; `lent` is the sum of the fills."""
    lease, lent, used = Lease(amount), 0.0, 0.0
    most = 0.0
    for n, fill, there in steps:
        if fill:
            demand = lease.demand(idle=n % 2 == 0)
            if demand > 0:
                demand = min(demand, there)
                lease.level += demand
            lent += demand
        elif lease.has(min(n, amount)):
            used += lease.take(n)
            most = max(most, min(n, amount))
        assert lent - used == pytest.approx(lease.level)
        assert used <= lent + max(lease.most, most)
        assert lease.level <= max(2 * lease.most, 0) + 1e-9


class Unasked:
    """Redis is there, and is never asked."""

    up, patience = True, 1.0

    def owe(self, *owed: object) -> None:
        raise AssertionError(owed)

    def request_refill(self, allowance: LeasedAllowance) -> None: ...


def test_a_lease_stays_after_a_reload() -> None:
    config = LimitsConfig.model_validate({"tokens": "1000/hour", "concurrency": 40})
    allowance = LeasedAllowance(Unasked(), "tenant", "acme", config, 0.0, 0.0)
    leased = dict(zip((lease.amount for lease in allowance._all()), (17.0, 3.0), strict=True))
    for lease in allowance._all():
        lease.level = leased[lease.amount]
    allowance.configure(LimitsConfig.model_validate({"tokens": "500/hour", "concurrency": 20}), 1.0, 1.0)
    assert [(lease.amount, lease.level) for lease in allowance._all()] == [(500.0, 17.0), (20, 3.0)]
