"""Faults of brokers and of the table of ids, on virtual time: nothing is lost, and nothing is answered by two."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from adapters.brokers.base import (
    BrokerDelivery,
    BrokerInbox,
    BrokerMessage,
    BrokerUnavailable,
    MessageRejected,
    MessageUnroutable,
    SubscriptionPlan,
)
from adapters.errors import BackendError
from adapters.fake import FakeAdapter, Script
from config.schema.bus.binding import BindingConfig
from gateway.bus.consumer import BindingConsumer
from gateway.bus.done.table import DONE, MINE, DoneTableUnavailable
from tests.support.brokers.broker import cloud_event
from tests.support.brokers.rig import ANSWER, WHOLE, chat_body
from tests.support.gateways import Rig, config

pytestmark = pytest.mark.looptime


class MemoryBroker:
    """A broker in memory: a client and its only subscription. `down` makes every call fail."""

    def __init__(self) -> None:
        self.waiting: list[BrokerDelivery] = []
        self.published: list[BrokerMessage] = []
        self.settled: list[str] = []
        self.released: list[str] = []
        self.down = False
        self.rejects: Callable[[BrokerMessage], bool] = lambda _: False
        self.unread = set[str]()
        """Topics that nothing reads."""
        self.calls: list[str] = []

    def put(self, id_: str, body: bytes | None = None, count: int = 1, **attributes: Any) -> None:
        place = f"p{len(self.waiting)}-{id_}-{count}"
        headers = cloud_event(id_, **attributes)
        self.waiting.append(BrokerDelivery("in", body or chat_body(), headers, place=place, handle=None, count=count))

    def _check(self) -> None:
        if self.down:
            raise BrokerUnavailable("down")

    async def open(self) -> None:
        self._check()

    async def subscribe(self, plan: SubscriptionPlan) -> "MemoryBroker":
        self._check()
        return self

    async def listen(self, topic: str) -> BrokerInbox:
        raise NotImplementedError

    async def publish(self, messages: Sequence[BrokerMessage]) -> list[MessageRejected | None]:
        self._check()
        self.calls.append("publish")
        rejected = [self._rejection(message) for message in messages]
        self.published += [message for message, end in zip(messages, rejected, strict=True) if end is None]
        return rejected

    def _rejection(self, message: BrokerMessage) -> MessageRejected | None:
        if message.topic in self.unread:
            return MessageUnroutable("no reader")
        return MessageRejected("too large") if self.rejects(message) else None

    async def receive(self, most: int, patience: float) -> list[BrokerDelivery]:
        self._check()
        taken, self.waiting = self.waiting[:most], self.waiting[most:]
        if not taken:
            await asyncio.sleep(patience)
        return taken

    async def settle(self, deliveries: Sequence[BrokerDelivery]) -> None:
        self._check()
        self.calls.append("settle")
        self.settled += [delivery.place for delivery in deliveries]

    async def renew(self, deliveries: Sequence[BrokerDelivery]) -> None:
        self._check()

    async def release(self, deliveries: Sequence[BrokerDelivery]) -> None:
        self.released += [delivery.place for delivery in deliveries]

    async def lag(self) -> int | None:
        return len(self.waiting)

    async def aclose(self) -> None:
        return

    def statuses(self) -> list[str]:
        return [each.headers["ce_status"] for each in self.published if each.topic == "out"]

    def reasons(self) -> list[str]:
        return [each.headers["headrace-dead-reason"] for each in self.published if each.topic == "dead"]


class MemoryTable:
    """A table of ids in memory, shared with another process by `others`."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.broker = broker
        self.entries: dict[str, str] = {}
        self.down = False

    def _check(self) -> None:
        if self.down:
            raise DoneTableUnavailable("down")

    async def claim(self, ids: Sequence[str]) -> list[float]:
        self._check()
        ends = []
        for id_ in ids:
            owner = self.entries.setdefault(id_, "me")
            ends.append(MINE if owner == "me" else DONE if owner == "*" else 1.0)
        return ends

    async def renew(self, ids: Sequence[str]) -> list[bool]:
        return [end == MINE for end in await self.claim(ids)]

    async def finish(self, ids: Sequence[str]) -> None:
        self._check()
        self.broker.calls.append("finish")
        for id_ in ids:
            self.entries[id_] = "*"

    async def release(self, ids: Sequence[str]) -> None:
        for id_ in ids:
            if self.entries.get(id_) == "me":
                del self.entries[id_]

    async def sweep(self) -> None:
        self._check()


class Faults:
    def __init__(self, *scripts: Script, **fields: Any) -> None:
        made = {"name": "b", "broker": "kafka://x:1", "topic": "in", "tenant": "acme", "reply": "out"}
        self.binding = BindingConfig.model_validate({**made, "dead_letters": "dead", "takeover": "10s", **fields})
        self.rig = Rig(config(), {"main": [FakeAdapter(*(scripts or (WHOLE,)))]})
        self.broker = MemoryBroker()
        self.table = MemoryTable(self.broker)
        self.consumer = BindingConsumer(self.binding, self.broker, self.rig.core, None, self.table)
        self.running: asyncio.Task[None]

    async def __aenter__(self) -> "Faults":
        self.running = asyncio.create_task(self.consumer.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        await self.consumer.aclose()
        self.rig.assert_idle()


async def test_the_order_is_answer_then_id_then_settlement() -> None:
    async with Faults() as made:
        made.broker.put("a")
        await asyncio.sleep(5)
        assert made.broker.calls == ["publish", "finish", "settle"]


async def test_nothing_is_lost_while_the_broker_is_away() -> None:
    slow = Script(chunks=(ANSWER,), latency=1.0)
    async with Faults(slow) as made:
        made.broker.put("a")
        await asyncio.sleep(0.5)
        made.broker.down = True
        await asyncio.sleep(100)
        assert not made.consumer.available
        assert made.broker.settled == []
        made.broker.down = False
        await asyncio.sleep(20)
        assert made.broker.statuses() == ["200"]
        assert len(made.broker.settled) == 1
        assert made.consumer.available


async def test_nothing_is_answered_while_the_table_is_away() -> None:
    async with Faults() as made:
        made.table.down = True
        made.broker.put("a")
        await asyncio.sleep(100)
        assert made.broker.published == []
        made.table.down = False
        await asyncio.sleep(20)
        assert made.broker.statuses() == ["200"]


async def test_an_answer_is_not_published_after_its_claim_has_passed_to_another_process() -> None:
    slow = Script(chunks=(ANSWER,), latency=60.0)
    async with Faults(slow, takeover="10m") as made:
        made.broker.put("a")
        await asyncio.sleep(1)
        (id_,) = made.table.entries
        made.consumer._in_work[id_].renewed_at = float("-inf")  # as after a long pause of the process
        made.table.entries[id_] = "another"
        await asyncio.sleep(120)
        assert made.broker.published == []
        assert made.broker.settled == []
        made.table.entries[id_] = "*"
        await asyncio.sleep(5)
        assert made.broker.published == []
        assert len(made.broker.settled) == 1


async def test_a_message_of_another_process_waits_for_its_end() -> None:
    async with Faults() as made:
        made.broker.put("a")
        made.broker.put("a", count=2)
        await asyncio.sleep(5)
        assert made.broker.statuses() == ["200"]
        assert len(made.broker.settled) == 2
        made.table.entries.update(dict.fromkeys(made.table.entries, "another"))
        made.broker.put("a", count=3)
        await asyncio.sleep(30)
        assert len(made.broker.settled) == 2
        made.table.entries.clear()  # its claim has ended
        await asyncio.sleep(5)
        assert made.broker.statuses() == ["200", "200"]
        assert len(made.broker.settled) == 3


async def test_an_answer_that_the_broker_rejects_is_an_error_and_a_dead_letter() -> None:
    async with Faults() as made:
        made.broker.rejects = lambda message: message.headers.get("ce_status") == "200"
        made.broker.put("a")
        await asyncio.sleep(5)
        assert made.broker.statuses() == ["502"]
        assert made.broker.reasons() == ["answer_rejected"]
        assert len(made.broker.settled) == 1


async def test_an_answer_that_nothing_reads_is_a_dead_letter() -> None:
    async with Faults() as made:
        made.broker.unread = {"out"}
        made.broker.put("a")
        await asyncio.sleep(5)
        (dead,) = made.broker.published
        assert (dead.topic, dead.body) == ("dead", chat_body())
        assert made.broker.reasons() == ["answer_unroutable"]
        assert len(made.broker.settled) == 1


async def test_an_error_that_nothing_reads_has_its_dead_letter_only() -> None:
    async with Faults(Script(fault=BackendError("it failed")), attempts=1) as made:
        made.broker.unread = {"out"}
        made.broker.put("a")
        await asyncio.sleep(5)
        assert made.broker.reasons() == ["upstream_error"]
        assert len(made.broker.settled) == 1


async def test_a_message_in_work_is_not_dead_however_often_it_is_delivered() -> None:
    """A connection that is lost again and again while a message waits for capacity is no fault of the message."""
    slow = Script(chunks=(ANSWER,), latency=20.0)
    async with Faults(slow, deliveries=3) as made:
        for count in range(1, 9):
            made.broker.put("a", count=count)
            await asyncio.sleep(1)
        await asyncio.sleep(30)
        assert made.broker.statuses() == ["200"]
        assert made.broker.reasons() == []
        assert len(made.broker.settled) == 8


async def test_a_dead_letter_that_is_too_large_has_no_body() -> None:
    async with Faults(max_message="1KiB") as made:
        made.broker.rejects = lambda message: len(message.body) > 1024
        made.broker.put("a", body=b"x" * 5000)
        await asyncio.sleep(5)
        (dead,) = made.broker.published
        assert (dead.body, dead.headers["headrace-dead-bytes"]) == (b"", "5000")
        assert made.broker.reasons() == ["message_too_large"]


async def test_a_message_that_is_delivered_too_often_does_not_run() -> None:
    async with Faults(deliveries=3) as made:
        made.broker.put("a", count=4)
        await asyncio.sleep(5)
        assert made.broker.reasons() == ["delivered_too_often"]
        assert made.rig.adapters["main"][0].calls == []
        assert made.consumer.counts.redeliveries == 1


async def test_a_message_in_work_is_released_when_the_process_ends() -> None:
    stuck = Script(latency=1000.0)
    async with Faults(stuck) as made:
        made.broker.put("a")
        await asyncio.sleep(1)
        assert len(made.table.entries) == 1
    assert made.table.entries == {}
    assert len(made.broker.released) == 1
    assert made.broker.settled == []


async def test_a_settlement_that_fails_is_no_second_answer() -> None:
    async with Faults() as made:
        made.broker.settle = _unavailable  # type: ignore[method-assign, assignment]
        made.broker.put("a")
        await asyncio.sleep(5)
        del made.broker.settle
        made.broker.put("a", count=2)
        await asyncio.sleep(5)
        assert made.broker.statuses() == ["200"]
        assert len(made.broker.settled) == 1
        assert made.consumer.held == 0


async def _unavailable(_: object) -> None:
    raise BrokerUnavailable("down")


async def _unexpected(_: object) -> None:
    raise RuntimeError("unable to perform operation; the handler is closed")


async def test_later_messages_end_after_an_unexpected_error_of_a_settlement(caplog: pytest.LogCaptureFixture) -> None:
    async with Faults() as made:
        made.broker.settle = _unexpected  # type: ignore[method-assign, assignment]
        for id_ in ("a", "b"):
            made.broker.put(id_)
            await asyncio.sleep(5)
        del made.broker.settle
        made.broker.put("c")
        await asyncio.sleep(5)
        assert made.broker.statuses() == ["200"] * 3
        assert [place.split("-")[1] for place in made.broker.settled] == ["c"]
        assert made.consumer.held == 0
    assert caplog.text.count("answered messages may not be settled") == 2
    assert "RuntimeError: unable to perform operation" in caplog.text


async def test_claims_are_renewed_after_an_unexpected_error_of_a_renewal(caplog: pytest.LogCaptureFixture) -> None:
    slow = Script(chunks=(ANSWER,), latency=100.0)
    async with Faults(slow) as made:
        made.broker.renew = _unexpected  # type: ignore[method-assign, assignment]
        await asyncio.sleep(1)
        made.broker.put("a")
        await asyncio.sleep(5)
        del made.broker.renew
        await asyncio.sleep(20)
        (work,) = made.consumer._in_work.values()
        assert asyncio.get_running_loop().time() - work.renewed_at < made.binding.takeover
    assert "bus b: renewing begins again after an unexpected error" in caplog.text


async def test_a_message_waits_for_capacity_without_an_end_and_within_its_deadline() -> None:
    from adapters.errors import Overloaded

    full = Script(fault=Overloaded("full", retry_after=1.0))
    async with Faults(*[full] * 300, WHOLE) as made:
        made.broker.put("a")
        await asyncio.sleep(200)
        assert made.broker.published == []
        await asyncio.sleep(3600)
        assert made.broker.statuses() == ["200"]
    async with Faults(full, deadline="1m") as made:
        made.broker.put("a")
        await asyncio.sleep(120)
        assert made.broker.statuses() == ["504"]
