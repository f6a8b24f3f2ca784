"""Any schedule of reserve, settle, cancel and crash over several gateways and one Redis."""

import asyncio
import atexit
import tempfile
from collections.abc import Coroutine
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from redis import Redis

from adapters.errors import LimitExceeded
from config.schema.money import PICOS
from gateway.limits.ledger import Reservation
from gateway.limits.remote import redis_ledger
from gateway.limits.remote.leased import LeasedAllowance
from policies.limits.budget import Lease
from tests.gateway.limits.remote.gateways import Gateway
from tests.support.redis import RedisServer

T = TypeVar("T")
GATEWAYS = 3
REQUESTS, TOKENS, USD, PLACES = 12, 1000, 9, 5
LIMITS = {
    "requests": f"{REQUESTS}/month",  # so slow that what is earned back in a test is no whole one
    "tokens": f"{TOKENS}/month",
    "spend": f"{USD} usd/month",
    "concurrency": PLACES,
}


@cache
def server() -> RedisServer:
    """One for all examples; it ends with the process."""
    made = RedisServer(Path(tempfile.mkdtemp()))
    asyncio.run(made.start())
    atexit.register(made.kill)
    return made


class Held:
    def __init__(self, gateway: Gateway, reservation: Reservation, tokens: int, usd: int) -> None:
        self.gateway, self.reservation, self.tokens, self.usd = gateway, reservation, min(tokens, TOKENS), min(usd, USD)


def leases(gateway: Gateway) -> list[Lease]:
    assert isinstance(gateway.allowance, LeasedAllowance)
    return gateway.allowance._all()


class Machine(RuleBasedStateMachine):
    """Gateways that start and end, and the amounts that they hold."""

    count = ""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.redis = Redis.from_url(server().url)
        self.redis.flushall()
        self.gateways = [self.run(self.begin()) for _ in range(GATEWAYS)]
        self.held: list[Held] = []
        self.requests = 0
        self.tokens = 0
        self.usd = 0
        """Charged for good."""
        self.crashes = 0

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    async def begin(self) -> Gateway:
        made = Gateway(server(), {**LIMITS, "count": self.count})
        await made.until(up=True)
        return made

    async def reserve(self, i: int, tokens: int, usd: int) -> Held | None:
        gateway = self.gateways[i]
        try:
            reservation = await gateway.reserve(tokens, usd=usd)
        except LimitExceeded:
            return None
        self.requests += 1
        held = Held(gateway, reservation, tokens, usd)
        self.held.append(held)
        return held

    @rule(which=st.integers(0, 99), tokens=st.integers(0, 1200), usd=st.integers(0, 10))
    def settle(self, which: int, tokens: int, usd: int) -> None:
        if self.held:  # no precondition: what is drawn must not hang on the clock
            self.end(self.held.pop(which % len(self.held)), tokens, usd)

    def end(self, held: Held, tokens: int, usd: int) -> None:
        self.tokens += tokens
        self.usd += usd
        held.gateway.settle(held.reservation, tokens, usd)
        self.run(held.gateway.refreshed())

    @rule(i=st.integers(0, GATEWAYS - 1))
    def crash(self, i: int) -> None:
        """A gateway dies, and another gateway finds its expired entry."""
        dead = self.gateways[i]
        self.run(dead.die())
        self.redis.zadd("{headrace}:gateways", {dead.redis.name: 0.0})
        self.gateways[i] = self.run(self.begin())
        self.crashes += 1
        lost = [held for held in self.held if held.gateway is dead]
        self.held = [held for held in self.held if held.gateway is not dead]
        self.forget(lost)

    def forget(self, lost: list[Held]) -> None:
        """Account for the reservations of a dead gateway."""

    def teardown(self) -> None:
        for gateway in self.gateways:
            self.run(gateway.die())
        self.loop.close()
        self.redis.close()


class ExactMachine(Machine):
    """Decisions equal those of plain sums, and Redis holds the same state after each step."""

    count = "exact"

    @rule(i=st.integers(0, GATEWAYS - 1), tokens=st.integers(0, 1200), usd=st.integers(0, 10))
    def send(self, i: int, tokens: int, usd: int) -> None:
        granted = (
            len(self.held) < PLACES
            and self.requests < REQUESTS
            and self.tokens + sum(held.tokens for held in self.held) + min(tokens, TOKENS) <= TOKENS
            and self.usd + sum(held.usd for held in self.held) + min(usd, USD) <= USD
        )
        assert (self.run(self.reserve(i, tokens, usd)) is not None) == granted

    @rule(i=st.integers(0, GATEWAYS - 1))
    def give_up(self, i: int) -> None:
        """While it waits for Redis."""

        async def cancelled() -> None:
            task = asyncio.create_task(self.gateways[i].reserve(10, usd=1))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            await self.gateways[i].refreshed()

        self.run(cancelled())

    @invariant()
    def redis_has_the_same_amounts(self) -> None:
        row = self.run(self.gateways[0].row())
        if row:
            assert row["n"] == len(self.held)
            assert row["l0"] == pytest.approx(REQUESTS - self.requests, abs=0.05)
            left = TOKENS - self.tokens - sum(held.tokens for held in self.held)
            assert row["l1"] == pytest.approx(left, abs=0.5)
            assert row["umonth"] == (self.usd + sum(held.usd for held in self.held)) * PICOS


class LeasedMachine(Machine):
    """Never ahead by more than the bound, and nothing is lost but what dead gateways had in their leases."""

    count = "leased"
    most = max(TOKENS // 20, 300)
    """The largest request."""

    @rule(i=st.integers(0, GATEWAYS - 1), tokens=st.integers(0, 300), usd=st.integers(0, 2))
    def send(self, i: int, tokens: int, usd: int) -> None:
        self.run(self.reserve(i, tokens, usd))

    def end(self, held: Held, tokens: int, usd: int) -> None:
        super().end(held, min(tokens, held.tokens), min(usd, held.usd))

    @rule()
    def a_moment_passes(self) -> None:
        self.run(asyncio.sleep(0.02))

    @rule()
    def time_passes_without_requests(self) -> None:
        for held in self.held:
            self.end(held, held.tokens, held.usd)
        self.held = []

        lost, ahead = self.crashes * 2 * self.most, GATEWAYS * self.most
        least, most = TOKENS - self.tokens - lost - 0.5, TOKENS - self.tokens + lost + ahead + 0.5

        async def rest() -> None:
            async with asyncio.timeout(300):
                while any(lease.level > 0 for gateway in self.gateways for lease in leases(gateway)):
                    await asyncio.sleep(0.01)
                while (row := await self.gateways[0].row()) and (row["n"] or not least <= row["l1"] <= most):
                    await asyncio.sleep(0.01)  # what left the leases is on its way

        self.run(rest())

    def forget(self, lost: list[Held]) -> None:
        """Amounts that left the lease are already charged."""
        self.tokens += sum(held.tokens for held in lost)
        self.usd += sum(held.usd for held in lost)

    @invariant()
    def no_gateway_is_further_ahead_than_allowed(self) -> None:
        ahead = GATEWAYS + self.crashes
        assert self.requests <= REQUESTS + ahead
        assert self.tokens + sum(held.tokens for held in self.held) <= TOKENS + ahead * self.most
        assert self.usd + sum(held.usd for held in self.held) <= USD + ahead * 2
        assert len(self.held) <= PLACES + GATEWAYS


@pytest.fixture(autouse=True, scope="module")
def _quick() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redis_ledger, "SYNC", 0.002)
        patch.setattr(redis_ledger, "IDLE", 0.02)
        yield


few = settings(max_examples=12, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.processes
@pytest.mark.parametrize("machine", [ExactMachine, LeasedMachine])
def test_no_schedule_lets_more_through_or_loses_any(machine: type[Machine]) -> None:
    run_state_machine_as_test(machine, settings=few)
