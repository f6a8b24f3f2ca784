"""The server of the tests: its queues outlive a kill, and all of their messages are read."""

import asyncio
from pathlib import Path

import pytest

from tests.support.brokers.broker import cloud_event
from tests.support.brokers.rabbitmq import RabbitBroker

pytestmark = pytest.mark.servers


async def test_queues_and_their_counts_outlive_a_kill_just_after_their_declaration(tmp_path: Path) -> None:
    broker = RabbitBroker(tmp_path)
    try:
        await broker.start()
        await broker.topics("work", "dead")
        for number in range(20):
            await broker.send("work", b"{}", cloud_event(f"id-{number}"))
        await broker.disconnect()
        broker.kill()
        await broker.start()
        assert await broker.unsettled("work") == 20
        assert await broker.unsettled("dead") == 0
    finally:
        await broker.close()


async def test_all_messages_of_a_long_queue_are_read(broker: RabbitBroker) -> None:
    await broker.topics("long")
    await asyncio.gather(*(broker.send("long", b"%d" % number, {}) for number in range(3000)))
    assert len({each.body for each in await broker.messages("long")}) == 3000
