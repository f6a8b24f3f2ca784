"""The client of an MQTT 5 broker.

A connection publishes; each subscription and each topic that is read without a group has connections of its own.
"""

import asyncio
import re
from collections.abc import Sequence

from paho.mqtt import MQTTException
from paho.mqtt.client import MQTTMessage

from adapters.brokers.base import (
    BrokerDelivery,
    BrokerInbox,
    BrokerMessage,
    BrokerSubscription,
    BrokerUnavailable,
    MessageRejected,
    MessageUnroutable,
    PublishEnd,
    SubscriptionPlan,
    TopicRefused,
    publish_each,
)
from adapters.brokers.mqtt.connection import Connection, ConnectionPlan
from adapters.brokers.mqtt.member import MqttMember
from adapters.brokers.mqtt.session import headers_of, properties_of
from config.schema.bus import BrokerConfig

NO_SUBSCRIBERS = 0x10
NOT_AUTHORIZED, TOPIC_INVALID, PACKET_TOO_LARGE, PAYLOAD_INVALID = 0x87, 0x90, 0x95, 0x99
_REJECTED, _NO_RIGHT = (PACKET_TOO_LARGE, PAYLOAD_INVALID), (NOT_AUTHORIZED, TOPIC_INVALID)
LONGEST_TOPIC = 65_535
MOST_GRANTED = 10_000
"""Topics that a client remembers; messages for others are published one after the other."""
_NO_CHARACTERS = "".join(chr(plane << 16 | last) for plane in range(17) for last in (0xFFFE, 0xFFFF))
_NO_TEXT = re.compile(f"[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef{_NO_CHARACTERS}]")
"""Characters for which a broker may close the connection, with all of its messages (MQTT 5, 1.5.4)."""
_WILDCARD = re.compile("[+#]")
_FAILED = 0x80
HEADER = 16
"""Bytes of a packet beside the topic, the properties and the body, at most."""


def make(config: BrokerConfig) -> "MqttClient":
    """The client of one broker."""
    return MqttClient(config)


class MqttClient:
    """Publishing connections, and those of its subscriptions."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._publisher = _Publisher(config)
        self._trial = _Publisher(config)
        self._trying = asyncio.Lock()
        self._granted = set[str]()
        """Topics for which the broker has acknowledged a message."""

    async def open(self) -> None:
        await self._publisher.open()

    async def subscribe(self, plan: SubscriptionPlan) -> BrokerSubscription:
        made = MqttMember(self._config, plan)
        await made.open()
        return made

    async def listen(self, topic: str) -> BrokerInbox:
        made = MqttInbox(self._config)
        await made.open(topic)
        return made

    async def publish(self, messages: Sequence[BrokerMessage]) -> list[PublishEnd]:
        """The first message for a topic has a connection of its own: a broker may close it for a topic without the
        right, before it has read or acknowledged other messages."""
        await self.open()
        granted = self._granted.copy()
        return await publish_each(
            "MQTT", messages, lambda message: self._send(message) if message.topic in granted else self._try(message)
        )

    async def _try(self, message: BrokerMessage) -> PublishEnd:
        async with self._trying:
            if message.topic in self._granted:
                return await self._send(message)
            connection = await self._trial.open()
            end = await self._publish(connection, message)
            if isinstance(end, TopicRefused):
                await self._trial.close()
            elif (end is None or isinstance(end, MessageUnroutable)) and len(self._granted) < MOST_GRANTED:
                self._granted.add(message.topic)
            return end

    async def _send(self, message: BrokerMessage) -> PublishEnd:
        try:
            end = await self._publish(await self._publisher.open(), message)
        except BrokerUnavailable:
            self._granted.clear()  # the reason may be a right that was withdrawn
            raise
        if isinstance(end, TopicRefused):
            self._granted.discard(message.topic)
        return end

    async def _publish(self, connection: Connection, message: BrokerMessage) -> PublishEnd:
        topic = message.topic
        if _NO_TEXT.search(topic) or _WILDCARD.search(topic) or not 0 < len(topic.encode()) <= LONGEST_TOPIC:
            return TopicRefused(f"MQTT: {topic[:128]!r} is not a topic for messages")
        if any(_NO_TEXT.search(text) for pair in message.headers.items() for text in pair):
            return MessageRejected("MQTT: a header has a control character, or no character")
        try:
            properties = properties_of(message)
            size = len(message.topic) + len(properties.pack()) + len(message.body) + HEADER
            if connection.largest is not None and size > connection.largest:
                return MessageRejected(f"MQTT: the broker accepts packets of {connection.largest} bytes")
            code = await connection.publish(message.topic, message.body, properties)
        except MQTTException as error:
            return MessageRejected(f"MQTT: {error}"[:300])
        if code.value in _REJECTED:
            return MessageRejected(f"MQTT: {code}")
        if code.value in _NO_RIGHT:
            return TopicRefused(f"MQTT: the broker refuses the topic {message.topic[:128]}: {code}")
        if code.value >= _FAILED:  # such as a full quota: an operator can help
            return BrokerUnavailable(f"MQTT: the broker refuses a message for {message.topic}: {code}")
        if code.value == NO_SUBSCRIBERS:
            return MessageUnroutable(f"MQTT: nothing subscribes to {message.topic}")
        return None

    async def aclose(self) -> None:
        await self._publisher.close()
        await self._trial.close()


class _Publisher:
    """A connection that is opened again after its loss."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._connection: Connection | None = None
        self._opening = asyncio.Lock()

    async def open(self) -> Connection:
        """The connection. Raises `BrokerUnavailable`."""
        async with self._opening:
            if self._connection is None or self._connection.lost.is_set():
                connection = Connection(self._config, ConnectionPlan(), _ignore)
                await connection.open()
                self._connection = connection
            return self._connection

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


class MqttInbox:
    """A subscription of this connection only, acknowledged when messages arrive."""

    def __init__(self, config: BrokerConfig) -> None:
        self._arrived: asyncio.Queue[MQTTMessage] = asyncio.Queue()
        self._connection = Connection(config, ConnectionPlan(), self._arrived.put_nowait)

    async def open(self, topic: str) -> None:
        """Connect and subscribe. Raises `BrokerUnavailable`."""
        await self._connection.open()
        try:
            await self._connection.subscribe(topic)
        except BaseException:
            await self._connection.close()
            raise

    async def receive(self, patience: float) -> list[BrokerDelivery]:
        if self._arrived.empty() and self._connection.lost.is_set():
            raise BrokerUnavailable(f"MQTT: {self._connection.reason}")
        try:
            async with asyncio.timeout(patience):
                messages = [await self._arrived.get()]
        except TimeoutError:
            return []
        while not self._arrived.empty():
            messages.append(self._arrived.get_nowait())
        return [
            BrokerDelivery(each.topic, bytes(each.payload), headers_of(each), place="", handle=None)
            for each in messages
        ]

    async def aclose(self) -> None:
        await self._connection.close()


def _ignore(message: MQTTMessage) -> None:
    """The publishing connection subscribes to nothing."""
