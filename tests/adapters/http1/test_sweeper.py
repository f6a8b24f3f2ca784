"""One timer for every deadline of a loop."""

import asyncio
import math
from collections.abc import Callable
from typing import cast
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.http1.sweeper import CALM, EARLY, INTERVAL, NEVER, Sweeper, sweeper


class Wait:
    """Something that expires."""

    rests = True

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.expired = asyncio.Event()

    def expire(self) -> None:
        assert not self.expired.is_set()
        self.expired.set()


async def test_all_sets_of_a_loop_are_looked_at_together() -> None:
    loop = asyncio.get_running_loop()
    now = loop.time()
    first, second, late = Wait(now + 0.02), Wait(now + 0.05), Wait(now + 3600)
    clients, servers = {first}, {second, late}
    sweeper(loop).watch(clients)
    sweeper(loop).watch(servers)
    await asyncio.wait_for(first.expired.wait(), 300)
    await asyncio.wait_for(second.expired.wait(), 300)
    assert loop.time() >= now + 0.05
    assert first.deadline == second.deadline == NEVER
    assert not late.expired.is_set()
    servers.clear()


async def test_the_earliest_deadline_of_a_set_expires_first() -> None:
    loop, order = asyncio.get_running_loop(), list[float]()

    class Noted(Wait):
        def expire(self) -> None:
            order.append(self.at)
            super().expire()

        def __init__(self, at: float) -> None:
            super().__init__(at)
            self.at = at

    waits = {Noted(loop.time() - at) for at in (3.0, 9.0, 1.0, 7.0, 5.0, 2.0, 8.0)}
    sweeper(loop).watch(waits)
    for wait in waits:
        await asyncio.wait_for(wait.expired.wait(), 300)
    assert order == sorted(order)
    waits.clear()


async def test_nothing_is_timed_while_every_set_is_empty() -> None:
    loop = asyncio.get_running_loop()
    mine, member = sweeper(loop), Wait(loop.time())
    members = {member}
    mine.watch(members)
    await asyncio.wait_for(member.expired.wait(), 300)
    members.clear()
    async with asyncio.timeout(300):
        while mine._handle is not None:
            await asyncio.sleep(0.01)
    again = Wait(loop.time())
    members.add(again)
    mine.watch(members)
    await asyncio.wait_for(again.expired.wait(), 300)
    members.clear()


class Timers:
    """The clock and the timers of a loop, which the test moves. A timer fires as early as one of uvloop may."""

    def __init__(self, now: float) -> None:
        self.now = now
        self.due: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> Mock:
        timer = (when, callback)
        self.due.append(timer)
        return Mock(cancel=lambda: self.due.remove(timer))

    def advance(self, until: float) -> int:
        """Fire what is due until a time, at the whole millisecond below each. Returns how many timers fired."""
        fired = 0
        while self.due and min(self.due)[0] <= until:
            timer = min(self.due)
            self.due.remove(timer)
            self.now = max(self.now, math.floor(timer[0] * 1000) / 1000)
            fired += 1
            timer[1]()
        self.now = until
        return fired


@pytest.fixture
def real_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this folder look more often."""
    monkeypatch.setattr("adapters.http1.sweeper.INTERVAL", INTERVAL)
    monkeypatch.setattr("adapters.http1.sweeper.CALM", CALM)


@pytest.mark.usefixtures("real_pace")
@given(uptime=st.floats(0, 1e7), rest=st.floats(5, 60), stirred=st.booleans(), ahead=st.floats(EARLY, CALM))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_calm_loop_wakes_seldom_and_a_nearer_deadline_expires_in_time(
    uptime: float, rest: float, stirred: bool, ahead: float
) -> None:
    timers = Timers(uptime)
    mine, resting = Sweeper(cast(asyncio.AbstractEventLoop, timers)), Wait(uptime + 3600)
    mine.watch({resting})
    timers.advance(uptime + 2)
    assert timers.advance(uptime + 2 + rest) <= rest / CALM + 1
    resting.deadline = due = timers.now + ahead
    if stirred:
        mine.stir()
    timers.advance(due + (INTERVAL if stirred else CALM) + EARLY + 1e-6)
    assert resting.expired.is_set()


async def test_each_loop_has_one() -> None:
    loop = asyncio.get_running_loop()
    other = asyncio.new_event_loop()
    try:
        assert sweeper(loop) is sweeper(loop)
        assert sweeper(loop) is not sweeper(other)
    finally:
        other.close()
