"""The client of RabbitMQ: publishes with confirmations, and opens subscriptions and inboxes."""

import asyncio
import secrets
from collections.abc import Sequence
from contextlib import suppress

from aiormq import Channel, ChannelAccessRefused, ChannelPreconditionFailed, DeliveryError, PublishError
from aiormq.abc import AbstractChannel, DeliveredMessage

from adapters.brokers.base import (
    BrokerDelivery,
    BrokerMessage,
    BrokerUnavailable,
    MessageRejected,
    MessageUnroutable,
    PublishEnd,
    SubscriptionPlan,
    TopicRefused,
    end_of,
    together,
)
from adapters.brokers.rabbitmq.connection import (
    EXCHANGE,
    RabbitConnection,
    answering,
    close,
    declare,
    declare_inbox,
    queue_of,
)
from adapters.brokers.rabbitmq.messages import LONGEST_NAME, delivery_of, properties_of
from adapters.brokers.rabbitmq.subscription import RabbitSubscription
from config.schema.bus import BrokerConfig

# All messages of a topic from now on, in a queue that ends with the connection.

AHEAD = 1000


class RabbitInbox:
    """Acknowledges the messages that `receive` returns."""

    def __init__(self, connection: RabbitConnection, topic: str) -> None:
        self._connection = connection
        self._topic = topic
        self._channel: AbstractChannel | None = None
        self._arrived: list[DeliveredMessage] = []
        self._wake = asyncio.Event()

    async def open(self) -> None:
        """Begin to read. Raises `BrokerUnavailable`."""
        self._channel = channel = await self._connection.channel()
        channel.closing.add_done_callback(lambda _: self._wake.set())
        try:
            async with answering():
                queue = await declare_inbox(channel, self._topic)
                await channel.basic_qos(prefetch_count=AHEAD)
                await channel.basic_consume(queue, self._arrive)
        except BaseException:
            await self.aclose()
            raise

    async def _arrive(self, message: DeliveredMessage) -> None:
        self._arrived.append(message)
        self._wake.set()

    async def receive(self, patience: float) -> list[BrokerDelivery]:
        channel = self._channel
        if channel is None or channel.is_closed:
            raise BrokerUnavailable("RabbitMQ: the connection is lost")
        if not self._arrived:
            self._wake.clear()
            try:
                async with asyncio.timeout(patience):
                    await self._wake.wait()
            except TimeoutError:
                return []
        messages, self._arrived = self._arrived, []
        if not messages:
            return []
        with suppress(BrokerUnavailable):  # the next call reports the loss; these messages have arrived
            async with answering():
                await channel.basic_ack(messages[-1].delivery_tag or 0, multiple=True, wait=False)
        return [delivery_of(self._topic, self._topic, message, None) for message in messages]

    async def aclose(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await close(channel)


Ends = list[PublishEnd]


def make(config: BrokerConfig) -> "RabbitClient":
    """The client of one cluster."""
    return RabbitClient(config)


class RabbitClient:
    """Two connections: a broker without memory blocks those that publish, but acknowledgements must still arrive."""

    def __init__(self, config: BrokerConfig) -> None:
        self._publishing = RabbitConnection(config, "publisher")
        self._reading = RabbitConnection(config, "reader")
        self._channel: Channel | None = None
        self._opening = asyncio.Lock()
        self._retained = set[str]()
        self._ids = set[str]()
        """The ids of the publications in flight: the library assigns returned messages by them."""

    async def open(self) -> None:
        await self._publisher()

    async def subscribe(self, plan: SubscriptionPlan) -> RabbitSubscription:
        self._retained.update(plan.retained)
        made = RabbitSubscription(self._reading, plan)
        await made.open()
        return made

    async def listen(self, topic: str) -> RabbitInbox:
        made = RabbitInbox(self._reading, topic)
        await made.open()
        return made

    async def publish(self, messages: Sequence[BrokerMessage]) -> Ends:
        """To the queues that are bound to a topic; without any, to the queue that has its name."""
        ends = await self._publish_all(messages, EXCHANGE)
        ends = await self._again(messages, ends, "")
        absent = {message.topic for message, end in zip(messages, ends, strict=True) if _is_unroutable(end)}
        for topic in absent & self._retained:
            await declare(self._publishing, topic, queue_of(topic))
        return together(await self._again(messages, ends, "") if absent & self._retained else ends)

    async def _again(self, messages: Sequence[BrokerMessage], ends: Ends, exchange: str) -> Ends:
        """Publish the messages that no queue has taken."""
        places = [at for at, end in enumerate(ends) if _is_unroutable(end)]
        if places:
            results = await self._publish_all([messages[at] for at in places], exchange)
            for at, result in zip(places, results, strict=True):
                ends[at] = result
        return ends

    async def _publish_all(self, messages: Sequence[BrokerMessage], exchange: str) -> Ends:
        """Publish together. A message that the broker refuses closes the channel: others are published once more."""
        results = await self._together(messages, exchange)
        ends = Ends()
        for message, result in zip(messages, results, strict=True):
            if _closes(result) and len(messages) > 1:
                (result,) = await self._together([message], exchange)
            if _closes(result):
                kind = TopicRefused if isinstance(result, ChannelAccessRefused) else MessageRejected
                result = kind(f"RabbitMQ: {result}"[:300])
            ends.append(end_of("RabbitMQ", result))
        return ends

    async def _together(self, messages: Sequence[BrokerMessage], exchange: str) -> list[PublishEnd | BaseException]:
        channel = await self._publisher()
        try:
            async with answering():
                calls = (self._publish(channel, message, exchange) for message in messages)
                return list(await asyncio.gather(*calls, return_exceptions=True))
        except BrokerUnavailable:
            await self._publishing.aclose()  # too late for its confirmations
            raise

    async def _publish(self, channel: Channel, message: BrokerMessage, exchange: str) -> PublishEnd:
        if len(message.topic.encode()) > LONGEST_NAME:
            return TopicRefused(f"RabbitMQ: a topic has at most {LONGEST_NAME} bytes")
        id_ = message.id if message.id and message.id not in self._ids else secrets.token_hex(16)
        properties = properties_of(message, id_)
        if isinstance(properties, MessageRejected):
            return properties
        self._ids.add(id_)
        try:
            await channel.basic_publish(
                message.body,
                exchange=exchange,
                routing_key=message.topic,
                properties=properties,
                mandatory=True,
                wait=False,
            )
        except PublishError:
            return MessageUnroutable(f"RabbitMQ: no queue is bound to the topic {message.topic}")
        except DeliveryError:
            return BrokerUnavailable(f"RabbitMQ: a queue of the topic {message.topic} accepts no message")
        finally:
            self._ids.discard(id_)
        return None

    async def _publisher(self) -> Channel:
        async with self._opening:
            if self._channel is None or self._channel.is_closed:
                channel = await self._publishing.channel(confirms=True)
                assert isinstance(channel, Channel)
                self._channel = channel
            return self._channel

    async def aclose(self) -> None:
        if self._channel is not None:
            await close(self._channel)
        await self._publishing.aclose()
        await self._reading.aclose()


def _is_unroutable(end: PublishEnd) -> bool:
    return isinstance(end, MessageUnroutable)


def _closes(result: BaseException | None) -> bool:
    """Whether the broker has closed the channel for a message that is too large, or for a topic without the right."""
    is_large = isinstance(result, ChannelPreconditionFailed) and "message size" in str(result)
    return is_large or isinstance(result, ChannelAccessRefused)
