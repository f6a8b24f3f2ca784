"""Bindings to queues of SQS with settings of their own: a redrive policy, and the order of FIFO queues."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from adapters.errors import Overloaded
from adapters.fake import Script
from gateway.features.bus.consumer import BindingConsumer
from tests.support.brokers.broker import cloud_event
from tests.support.brokers.rig import WHOLE, BusRig, binding, bus_rig, chat_body
from tests.support.brokers.sqs import SqsBroker

STUCK = Script(latency=1000.0)
FIFO: dict[str, Any] = {"topic": "orders.fifo", "reply": "answers.fifo", "order": "key", "concurrency": 16}


class Ended(Exception):
    """The end of a process."""


@pytest_asyncio.fixture
async def queues(tmp_path: Path, sqs: int) -> AsyncIterator[SqsBroker]:
    made = SqsBroker(tmp_path, sqs)
    await made.start()
    try:
        await made.topics("requests", "answers", "dead", "redriven", "orders.fifo", "answers.fifo")
        yield made
    finally:
        await made.close()


@asynccontextmanager
async def ending(broker: SqsBroker, folder: Path, *scripts: Script, **fields: Any) -> AsyncIterator[BusRig]:
    """Running bindings. Their process ends with messages in work."""
    with suppress(Ended):
        async with bus_rig(broker, folder, *scripts, bindings=[binding(broker, **fields)]) as bus:
            yield bus
            raise Ended


async def send_orders(broker: SqsBroker, groups: str, count: int) -> None:
    """Publish messages of each group, in turn."""
    for number in range(count):
        for group in groups:
            id_ = f"{group}{number:02}"
            await broker.send("orders.fifo", chat_body(user=id_), cloud_event(id_), group.encode())


async def answered(broker: SqsBroker, count: int) -> list[str]:
    """The ids of the messages in the order of their answers."""
    return [each.headers["ce_correlationid"] for each in await broker.read("answers.fifo", count)]


# ── redrive policies ──────────────────────────────────────────────────────────────────────────────────────


async def test_a_message_that_ends_its_processes_goes_to_the_queue_of_the_redrive_policy(
    queues: SqsBroker, tmp_path: Path
) -> None:
    await queues.redrive("requests", "redriven", 2)
    await queues.send("requests", chat_body(user="bad"), cloud_event("bad"), b"k")
    for _ in range(2):
        async with ending(queues, tmp_path, STUCK) as bus:
            await bus.until(lambda: bus.fake.calls)
    async with bus_rig(queues, tmp_path) as bus:
        await bus.send("good")
        assert list(await bus.answers(1)) == ["good"]
        (moved,) = await queues.read("redriven", 1)
        assert (moved.body, moved.headers) == (chat_body(user="bad"), {**cloud_event("bad"), "ce_partitionkey": "k"})
        await queues.settled("requests")
        assert await queues.messages("dead") == []
        await queues.send("requests", moved.body, moved.headers)  # as its owner moves it back
        assert list(await bus.answers(2)) == ["good", "bad"]


async def test_a_redrive_policy_that_allows_more_deliveries_than_the_binding_moves_nothing(
    queues: SqsBroker, tmp_path: Path
) -> None:
    await queues.redrive("requests", "redriven", 3)
    await queues.send("requests", chat_body(user="bad"), cloud_event("bad"))
    for _ in range(2):
        async with ending(queues, tmp_path, STUCK, deliveries=2) as bus:
            await bus.until(lambda: bus.fake.calls)
    async with bus_rig(queues, tmp_path, bindings=[binding(queues, deliveries=2)]) as bus:
        (dead,) = await queues.read("dead", 1)
        assert dead.headers["headrace-dead-reason"] == "delivered_too_often"
        await queues.settled("requests")
        assert bus.fake.calls == []
        assert await queues.messages("redriven") == []


# ── FIFO queues ───────────────────────────────────────────────────────────────────────────────────────────


async def test_messages_of_a_group_that_are_delivered_again_while_they_wait_are_answered_in_their_order(
    queues: SqsBroker, tmp_path: Path
) -> None:
    full = Script(fault=Overloaded("every endpoint is full", retry_after=0.01))
    await send_orders(queues, "ab", 12)
    async with bus_rig(queues, tmp_path, WHOLE, WHOLE, full, bindings=[binding(queues, **FIFO, takeover="10m")]) as bus:
        await bus.until(lambda: len(bus.fake.calls) >= 3)
        works = bus.consumer._in_work
        async with asyncio.timeout(300):
            while not bus.consumer.counts.redeliveries:
                handles = [each.handle for work in works.values() for each in work.deliveries]
                await queues.show("orders.fifo", handles)
                await asyncio.sleep(0.1)
        bus.fake._scripts = chain((), repeat(WHOLE))
        order = await answered(queues, 24)
        await queues.settled("orders.fifo")
        assert bus.consumer.counts.outcomes["answered"] == 24
    for group in "ab":
        assert [id_ for id_ in order if id_[0] == group] == [f"{group}{number:02}" for number in range(12)]


@pytest.mark.parametrize("end", ["orderly", "killed"])
async def test_messages_of_a_group_are_answered_in_their_order_by_the_next_process(
    queues: SqsBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    await send_orders(queues, "a", 12)
    async with ending(queues, tmp_path, WHOLE, WHOLE, STUCK, **FIFO) as bus:
        await bus.until(lambda: len(bus.fake.calls) == 3)
        if end == "killed":
            monkeypatch.setattr(BindingConsumer, "_release", _nothing)
    async with bus_rig(queues, tmp_path, bindings=[binding(queues, **FIFO)]) as bus:
        order = await answered(queues, 12)
        await queues.settled("orders.fifo")
        assert bus.consumer.counts.redeliveries > 0
        assert len(bus.fake.calls) == 10
    assert order == [f"a{number:02}" for number in range(12)]


async def _nothing(_: object) -> None:
    """Release nothing: messages stay hidden, and their ids claimed, for `takeover`."""
