"""A member of a group: consumers of the group's queue on one channel.

A delivery tag belongs to its channel. When the channel is lost, the broker delivers its messages again, and the tags of
the deliveries in work have no effect any more: nothing else is acknowledged in their place.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from aiormq.abc import AbstractChannel, DeliveredMessage

from adapters.brokers.base import BrokerDelivery, BrokerUnavailable, SubscriptionPlan
from adapters.brokers.rabbitmq.connection import RabbitConnection, answering, close, declare, queue_of, ready
from adapters.brokers.rabbitmq.messages import delivery_of

# The number of messages that the broker may send ahead: the free places, and not a fixed prefetch.
#
# The prefetch of a consumer cannot be changed. A larger number is a further consumer on the same channel; a smaller one
# ends all consumers, and the next call begins with a new one. The messages that they have received stay with the
# channel.

SURPLUS_FOR = 1.0
"""Seconds for which messages may be sent ahead without a free place."""
PARTS = 4
"""A further consumer has at least this part of `ahead`, so that there are few."""


class Consumer:
    """One consumer: `size` messages, of which `held` are not acknowledged."""

    __slots__ = ("held", "size", "tag")

    def __init__(self, tag: str, size: int) -> None:
        self.tag = tag
        self.size = size
        self.held = 0


class Credit:
    """The consumers of one channel. `ahead` is the largest number of free places."""

    def __init__(self, ahead: int) -> None:
        self._part = max(1, ahead // PARTS)
        self._most = 2 * ahead
        self.consumers: list[Consumer] = []
        self._surplus_since = inf

    @property
    def free(self) -> int:
        """Messages that the broker may send now."""
        return sum(consumer.size - consumer.held for consumer in self.consumers)

    def missing(self, most: int, buffered: int) -> int:
        """The size of a further consumer; 0 if none is needed."""
        lack = most - buffered - self.free
        if lack <= 0:
            return 0
        size = lack if not self.consumers else max(lack, self._part)
        return max(0, min(size, self._most - sum(consumer.size for consumer in self.consumers)))

    def is_surplus(self, most: int, buffered: int, now: float) -> bool:
        """Whether more than a part has been sent or may be sent without a free place, for a while."""
        surplus = self.free > 0 and self.free + buffered - most > (self._part if most else 0)
        self._surplus_since = min(self._surplus_since, now) if surplus else inf
        return now - self._surplus_since > SURPLUS_FOR


class _Tag(NamedTuple):
    """The handle of a delivery."""

    reader: "_Reader"
    consumer: Consumer
    number: int


class _Reader:
    """One channel, and the messages that have arrived on it."""

    def __init__(self, channel: AbstractChannel, ahead: int) -> None:
        self.channel = channel
        self.credit = Credit(ahead)
        self.arrived: deque[tuple[Consumer, DeliveredMessage]] = deque()
        self.wake = asyncio.Event()
        self.cancelled = False
        self.held = 0
        """Messages that are not acknowledged."""
        self._numbers = itertools.count(1)
        channel.closing.add_done_callback(lambda _: self.wake.set())
        channel.on_consumer_cancel_callbacks.add(self._on_cancel)

    @property
    def is_lost(self) -> bool:
        return self.cancelled or self.channel.is_closed

    def _on_cancel(self, _: object) -> None:
        """The broker has ended a consumer, for example because its queue was deleted."""
        self.cancelled = True
        self.wake.set()

    async def consume(self, queue: str, size: int) -> None:
        """Begin a consumer of `size` messages."""
        consumer = Consumer(f"headrace-{next(self._numbers)}", size)

        async def arrive(message: DeliveredMessage) -> None:
            consumer.held += 1
            self.held += 1
            self.arrived.append((consumer, message))
            self.wake.set()

        await self.channel.basic_qos(prefetch_count=size)
        await self.channel.basic_consume(queue, arrive, consumer_tag=consumer.tag)
        self.credit.consumers.append(consumer)

    async def stop(self) -> None:
        """End the consumers. Messages that they have received stay with this member."""
        while self.credit.consumers:
            await self.channel.basic_cancel(self.credit.consumers[-1].tag)
            self.credit.consumers.pop()

    def ended(self, tag: _Tag) -> None:
        """A message is acknowledged or returned."""
        tag.consumer.held -= 1
        self.held -= 1


class RabbitSubscription:
    """`open` declares the queue; the channel is opened by `receive`."""

    def __init__(self, connection: RabbitConnection, plan: SubscriptionPlan) -> None:
        self._connection = connection
        self._plan = plan
        self._queue = queue_of(plan.topic, plan.group)
        self._reader: _Reader | None = None
        self._loop = asyncio.get_running_loop()

    async def open(self) -> None:
        """Create the queue of the group if it is missing. Raises `BrokerUnavailable`."""
        await declare(self._connection, self._plan.topic, self._queue)

    async def receive(self, most: int, patience: float) -> list[BrokerDelivery]:
        reader = await self._reading()
        async with answering():
            await self._adjust(reader, most)
        if not most or not reader.arrived:
            await self._wait(reader, most, patience)
        if reader.is_lost:
            raise BrokerUnavailable("RabbitMQ: the consumer is lost")
        taken = [reader.arrived.popleft() for _ in range(min(most, len(reader.arrived)))]
        return [self._delivery(reader, consumer, message) for consumer, message in taken]

    async def _reading(self) -> _Reader:
        """The channel; a new one after the loss of the last one, whose messages are delivered again."""
        reader = self._reader
        if reader is not None and not reader.is_lost:
            return reader
        if reader is not None:
            self._reader = None
            await close(reader.channel)
            await self.open()  # the queue may have been deleted
        self._reader = reader = _Reader(await self._connection.channel(), self._plan.ahead)
        return reader

    async def _adjust(self, reader: _Reader, most: int) -> None:
        """Match the number of messages that may be sent ahead with the free places."""
        buffered = len(reader.arrived)
        if size := reader.credit.missing(most, buffered):
            await reader.consume(self._queue, size)
        elif reader.credit.is_surplus(most, buffered, self._loop.time()):
            await reader.stop()

    async def _wait(self, reader: _Reader, most: int, patience: float) -> None:
        if not most:
            await asyncio.sleep(patience)
            return
        reader.wake.clear()
        try:
            async with asyncio.timeout(patience):
                while not reader.arrived and not reader.is_lost:
                    reader.wake.clear()
                    await reader.wake.wait()
        except TimeoutError:
            return

    def _delivery(self, reader: _Reader, consumer: Consumer, message: DeliveredMessage) -> BrokerDelivery:
        tag = _Tag(reader, consumer, message.delivery_tag or 0)
        return delivery_of(self._plan.topic, self._queue, message, tag)

    async def settle(self, deliveries: Sequence[BrokerDelivery]) -> None:
        await self._end(deliveries, acknowledged=True)

    async def renew(self, deliveries: Sequence[BrokerDelivery]) -> None:
        """The heartbeats of the connection are those of its messages, within the broker's `consumer_timeout`."""

    async def release(self, deliveries: Sequence[BrokerDelivery]) -> None:
        await self._end(deliveries, acknowledged=False)

    async def _end(self, deliveries: Sequence[BrokerDelivery], *, acknowledged: bool) -> None:
        tags: list[_Tag] = [delivery.handle for delivery in deliveries]
        current = [tag for tag in tags if not tag.reader.is_lost]
        async with answering():
            for at, tag in enumerate(current, 1):
                channel = tag.reader.channel
                end = channel.basic_ack if acknowledged else channel.basic_nack
                await end(tag.number, wait=at == len(current))
                tag.reader.ended(tag)
        if len(current) < len(tags):
            raise BrokerUnavailable("RabbitMQ: the channel of the messages is lost")

    async def lag(self) -> int | None:
        """Messages in the queue, and those of this member. Those of other members are not counted."""
        try:
            waiting = await ready(self._connection, self._queue)
        except BrokerUnavailable:
            return None
        return None if waiting is None else waiting + (self._reader.held if self._reader is not None else 0)

    async def aclose(self) -> None:
        """Leave the group: the broker delivers what is not acknowledged to another member."""
        reader, self._reader = self._reader, None
        if reader is not None:
            await close(reader.channel)
