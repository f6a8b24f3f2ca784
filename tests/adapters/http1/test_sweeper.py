"""One timer for every deadline of a loop."""

import asyncio

import pytest

from adapters.http1.sweeper import CALM, INTERVAL, NEVER, sweeper


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


@pytest.fixture
def real_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this folder look more often."""
    monkeypatch.setattr("adapters.http1.sweeper.INTERVAL", INTERVAL)
    monkeypatch.setattr("adapters.http1.sweeper.CALM", CALM)


@pytest.mark.usefixtures("real_pace")
@pytest.mark.waits
@pytest.mark.parametrize("stirred", [False, True])
@pytest.mark.parametrize("after", [0.0, 0.05, 3.21])
async def test_a_calm_loop_wakes_seldom_and_a_nearer_deadline_expires_in_time(after: float, stirred: bool) -> None:
    loop = asyncio.get_running_loop()
    resting, sweeps = Wait(loop.time() + 3600), list[float]()
    mine, members = sweeper(loop), {resting}
    mine.watch(members)

    class Counted:
        """The deadline of a connection that rests, which notes when it is read."""

        expired = asyncio.Event()
        rests = True

        @property
        def deadline(self) -> float:
            if not sweeps or sweeps[-1] != loop.time():
                sweeps.append(loop.time())
            return NEVER

    members.add(Counted())  # type: ignore[arg-type]
    await asyncio.sleep(20 + after)
    assert sum(at > loop.time() - 10 for at in sweeps) <= 11 / CALM
    resting.deadline = due = loop.time() + 0.03
    if stirred:
        mine.stir()
    await resting.expired.wait()
    assert loop.time() - due <= (INTERVAL if stirred else CALM) + 1e-6
    members.clear()


async def test_each_loop_has_one() -> None:
    loop = asyncio.get_running_loop()
    other = asyncio.new_event_loop()
    try:
        assert sweeper(loop) is sweeper(loop)
        assert sweeper(loop) is not sweeper(other)
    finally:
        other.close()
