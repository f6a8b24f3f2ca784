"""Lines of batches beside live requests: they take what is left, and leave within a second."""

import asyncio
from contextlib import suppress

import pytest

from adapters.errors import Overloaded
from adapters.fake import FakeAdapter, Script
from gateway.features.batches.gate import Gate
from tests.support.gateways import Rig, chat, config

PLACES, RESERVE = 20, 0.1
POOLS = [{"name": "main", "endpoints": ["http://127.0.0.1:9"], "queue": {"max_in_flight": PLACES, "max": 1000}}]


class Batch:
    """Lines without an end, each of which is a request of the rig."""

    def __init__(self, rig: Rig, lines: int = 200) -> None:
        self.rig = rig
        self.gate = Gate(lambda: rig.core.snapshot, rig.core.clock, 64, RESERVE)
        self.ended = 0
        self._tasks = [asyncio.create_task(self._lines(i)) for i in range(lines)]

    async def _lines(self, number: int) -> None:
        while True:
            lane = await self.gate.enter("chat", (1.0, "batch", number))
            error = None
            try:
                headers = {"x-headrace-priority": "batch"}
                await self.rig.core.handle(self.rig.principal, chat(), headers, self.rig.record())
                self.ended += 1
            except Overloaded as refused:
                error = refused
            finally:
                self.gate.leave(lane, error)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.gate.close()
        assert self.gate.running == 0
        self.rig.assert_idle()


def rig() -> Rig:
    return Rig(config(pools=POOLS), {"main": [FakeAdapter(Script(latency=0.2))]})


async def live(one: Rig, seconds: float, concurrency: int) -> list[float]:
    """The seconds that live requests wait in the queue."""
    waits, end = list[float](), one.core.clock() + seconds

    async def client() -> None:
        while one.core.clock() < end:
            record = one.record()
            await one.core.handle(one.principal, chat(), {}, record)
            waits.append(record.trace.queue_seconds)

    await asyncio.gather(*[client() for _ in range(concurrency)])
    return waits


async def test_a_batch_takes_the_places_that_are_left() -> None:
    one = rig()
    batch = Batch(one)
    await asyncio.sleep(10.0)
    before = batch.ended
    await asyncio.sleep(10.0)
    assert batch.ended - before >= 0.95 * 10.0 * PLACES * (1 - RESERVE) / 0.2
    await batch.stop()


@pytest.mark.parametrize("concurrency", [1, 5, 15, 18])
async def test_live_requests_hardly_wait_and_the_batch_takes_the_rest(concurrency: int) -> None:
    one = rig()
    batch = Batch(one)
    await asyncio.sleep(10.0)
    await live(one, 1.0, concurrency)  # the second in which the batch leaves
    before = batch.ended
    waits = await live(one, 20.0, concurrency)
    assert sorted(waits)[int(0.95 * len(waits))] <= 0.1 * 0.2
    left = PLACES * (1 - RESERVE) - concurrency
    assert batch.ended - before >= 0.8 * 20.0 * left / 0.2
    await batch.stop()


async def test_a_flood_of_live_requests_stops_the_batch_within_a_second() -> None:
    one = rig()
    batch = Batch(one)
    await asyncio.sleep(10.0)
    flood = asyncio.create_task(live(one, 10.0, 100))
    await asyncio.sleep(1.0)
    before = batch.ended
    await asyncio.sleep(8.0)
    assert batch.ended == before
    await flood
    await asyncio.sleep(10.0)
    assert batch.ended > before + 100
    await batch.stop()


async def test_the_batch_that_is_due_first_runs_first() -> None:
    one = rig()
    gate = Gate(lambda: one.core.snapshot, one.core.clock, 1, 0.0)
    order = list[str]()

    async def line(due: float, name: str) -> None:
        lane = await gate.enter("chat", (due, name, 0))
        order.append(name)
        await asyncio.sleep(0.1)
        gate.leave(lane, None)

    await asyncio.gather(line(9.0, "first"), line(5.0, "late"), line(2.0, "soon"), line(2.0, "again"))
    assert order == ["first", "again", "soon", "late"]
    gate.close()


async def test_a_line_that_leaves_while_it_waits_takes_no_place() -> None:
    one = rig()
    gate = Gate(lambda: one.core.snapshot, one.core.clock, 1, 0.0)
    lane = await gate.enter("chat", (1.0, "a", 0))
    waiting = [asyncio.create_task(gate.enter("chat", (1.0, "b", i))) for i in range(3)]
    await asyncio.sleep(0.1)
    waiting[0].cancel()
    with suppress(asyncio.CancelledError):
        await waiting[0]
    gate.leave(lane, None)
    waiting[1].cancel()  # just after it was admitted
    await asyncio.gather(waiting[1], return_exceptions=True)
    gate.leave(await waiting[2], None)
    assert gate.running == 0
    gate.close()
