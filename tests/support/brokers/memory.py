"""A broker and a table of ids in memory, and a binding to them on virtual time."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from adapters.brokers.base import (
    BrokerDelivery,
    BrokerInbox,
    BrokerMessage,
    BrokerUnavailable,
    MessageRejected,
    MessageUnroutable,
    PublishEnd,
    SubscriptionPlan,
    TopicRefused,
)
from adapters.fake import FakeAdapter, Script
from config.schema.bus import BindingConfig
from gateway.features.bus.consumer import BindingConsumer
from gateway.features.bus.done.table import DONE, MINE, DoneTableUnavailable
from tests.support.brokers.broker import cloud_event
from tests.support.brokers.rig import WHOLE, chat_body
from tests.support.gateways import Rig, config


class MemoryBroker:
    """A broker in memory: a client and its only subscription. `down` makes every call fail."""

    def __init__(self) -> None:
        self.waiting: list[BrokerDelivery] = []
        self.published: list[BrokerMessage] = []
        self.settled: list[str] = []
        self.released: list[str] = []
        self.down = False
        self.rejects: Callable[[BrokerMessage], bool] = lambda _: False
        self.away: Callable[[BrokerMessage], bool] = lambda _: False
        """Messages that the broker cannot take now."""
        self.refused = set[str]()
        """Topics that the broker refuses."""
        self.unread = set[str]()
        """Topics that nothing reads."""
        self.calls: list[str] = []

    def put(self, id_: str, body: bytes | None = None, count: int = 1, **attributes: Any) -> None:
        self.put_raw(id_, body or chat_body(), cloud_event(id_, **attributes), count)

    def put_raw(self, id_: str, body: bytes, headers: Mapping[str, str], count: int = 1) -> None:
        """Put a message whose headers may be no envelope."""
        place = f"p{len(self.waiting)}-{id_}-{count}"
        self.waiting.append(BrokerDelivery("in", body, dict(headers), place=place, handle=None, count=count))

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

    async def publish(self, messages: Sequence[BrokerMessage]) -> list[PublishEnd]:
        self._check()
        self.calls.append("publish")
        rejected = [self._rejection(message) for message in messages]
        self.published += [message for message, end in zip(messages, rejected, strict=True) if end is None]
        return rejected

    def _rejection(self, message: BrokerMessage) -> PublishEnd:
        if self.away(message):
            return BrokerUnavailable("a queue is full")
        if message.topic in self.refused:
            return TopicRefused("no right")
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

    def statuses_by_id(self) -> dict[str, str]:
        return {
            each.headers["ce_correlationid"]: each.headers["ce_status"]
            for each in self.published
            if each.topic == "out"
        }

    def reasons(self) -> list[str]:
        return [each.headers["headrace-dead-reason"] for each in self.dead()]

    def dead(self) -> list[BrokerMessage]:
        return [each for each in self.published if each.topic == "dead"]


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


class MemoryBinding:
    """A running binding, which ends with an idle core."""

    def __init__(self, *scripts: Script, **fields: Any) -> None:
        made = {"name": "b", "broker": "kafka://x:1", "topic": "in", "tenant": "acme", "reply": "out"}
        self.binding = BindingConfig.model_validate({**made, "dead_letters": "dead", "takeover": "10s", **fields})
        self.rig = Rig(config(), {"main": [FakeAdapter(*(scripts or (WHOLE,)))]})
        self.broker = MemoryBroker()
        self.table = MemoryTable(self.broker)
        self.consumer = BindingConsumer(self.binding, self.broker, self.rig.core, None, self.table)
        self.running: asyncio.Task[None]

    async def __aenter__(self) -> "MemoryBinding":
        self.running = asyncio.create_task(self.consumer.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        await self.consumer.aclose()
        self.rig.assert_idle()
