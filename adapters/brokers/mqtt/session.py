"""One session of a shared subscription. The broker stores its messages while no client is connected to it.

MQTT requires that messages are acknowledged in the order in which they arrived: a message that is done waits for those
before it. After a new connection the broker sends all unacknowledged messages again; those in work are recognised by
their packet identifiers, and not delivered twice.
"""

import asyncio
import re
import secrets
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from math import ceil
from typing import Any

from paho.mqtt.client import MQTTMessage
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from adapters.brokers.base import BrokerDelivery, BrokerMessage
from adapters.brokers.mqtt.connection import Connection, ConnectionPlan
from adapters.wire.cloudevents import format_time, parse
from config.schema.bus import BrokerConfig

ENDS = "headrace/ends"
EXPIRY = 7 * 86400
"""Seconds for which the broker stores a session without a client."""
LARGEST_WINDOW = 65_535


class Unsettled:
    """A message that is not acknowledged. `connection` is the number of the connection that it came by last."""

    __slots__ = ("connection", "content", "done", "mid", "place", "session")

    def __init__(self, session: "MqttSession", mid: int, connection: int, place: str, content: int) -> None:
        self.session = session
        self.mid = mid
        self.connection = connection
        self.place = place
        self.content = content
        """A hash: another client may have ended the message, and the broker may use its identifier for another one."""
        self.done = False


class MqttSession:
    """`connect`, then wait for `lost`. `deliver` is called for each message."""

    def __init__(
        self, config: BrokerConfig, client_id: str, ahead: int, deliver: Callable[[BrokerDelivery], None]
    ) -> None:
        self.client_id = client_id
        self._config = config
        self._plan = ConnectionPlan(client_id, EXPIRY, min(LARGEST_WINDOW, 2 * ahead), acks=True)
        self._deliver = deliver
        self._entries: dict[int, Unsettled] = {}
        self._in_order = deque[Unsettled]()
        self._number = 0
        self._name = secrets.token_hex(8)
        self._count = 0
        self._end_topic = f"{ENDS}/{client_id}"
        self._ended = asyncio.Event()
        self.connection: Connection | None = None

    @property
    def connected(self) -> bool:
        """Whether the broker sends messages."""
        return self.connection is not None and not self.connection.lost.is_set()

    def has(self, entry: Unsettled) -> bool:
        """Whether a message is still one of this session."""
        return self._entries.get(entry.mid) is entry

    async def connect(self) -> bool:
        """Open a connection. Returns whether the broker has had the session. Raises `BrokerUnavailable`."""
        self._number += 1
        self._in_order.clear()
        # Messages that the broker has not sent again on the last connection are no longer in the session.
        self._entries = {mid: e for mid, e in self._entries.items() if e.connection >= self._number - 1}
        connection = self.connection = Connection(self._config, self._plan, self._received)
        present = await connection.open()
        if not present:
            self._entries.clear()
        return present

    def abandon(self) -> None:
        """Another client continues the session."""
        self._entries.clear()
        self._in_order.clear()

    def _received(self, message: MQTTMessage) -> None:
        entry = self._entries.get(message.mid)
        content = hash((message.topic, bytes(message.payload), repr(getattr(message.properties, "UserProperty", ""))))
        if entry is not None and message.dup and entry.connection < self._number and entry.content == content:
            entry.connection = self._number
            self._in_order.append(entry)
            self._acknowledge()
            return
        self._count += 1
        entry = Unsettled(self, message.mid, self._number, f"{self._name}/{self._count}", content)
        self._entries[message.mid] = entry
        self._in_order.append(entry)
        if message.topic == self._end_topic:  # also after another member has begun to end this session
            self._ended.set()
            self.settle([entry])
            return
        self._deliver(
            BrokerDelivery(message.topic, bytes(message.payload), headers_of(message), place=entry.place, handle=entry)
        )

    def settle(self, entries: Iterable[Unsettled]) -> None:
        """Acknowledge messages, at once or after those before them."""
        for entry in entries:
            entry.done = True
        self._acknowledge()

    def _acknowledge(self) -> None:
        while self._in_order and self._in_order[0].done and self.connected:
            assert self.connection is not None
            entry = self._in_order.popleft()
            if self.has(entry):
                del self._entries[entry.mid]
            self.connection.ack(entry.mid)

    # ── the end of a session ──────────────────────────────────────────────────────────────────────────

    async def ended(self, publish: Callable[[str], Coroutine[Any, Any, None]], patience: float) -> None:
        """Wait until all messages of the session are acknowledged.

        The session subscribes to a topic of its own, and `publish` puts a message there, which comes after all others.
        """
        assert self.connection is not None
        await self.connection.subscribe(self._end_topic)
        while not self._ended.is_set() and self.connected:
            await publish(self._end_topic)
            await _first(self._ended, self.connection.lost, patience)
        while self._entries and self.connected:
            await _first(self.connection.lost, self.connection.lost, 0.1)


async def _first(one: asyncio.Event, other: asyncio.Event, patience: float) -> None:
    """Wait for one of two events, for `patience` seconds at most."""
    tasks = [asyncio.create_task(event.wait()) for event in (one, other)]
    try:
        await asyncio.wait(tasks, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


# Headers of messages ↔ properties of MQTT 5, with CloudEvents as in their binding for MQTT.
#
# Attributes of CloudEvents are user properties without a prefix. The content type, the response topic, the correlation
# data and the expiry are properties of MQTT and attributes both.

LONGEST_EXPIRY = 2**32 - 1
_ATTRIBUTE = re.compile(r"[a-z0-9]{1,64}")
_NO_ATTRIBUTES = ("authorization",)
"""Names without a dash that are headers also beside attributes of CloudEvents."""


def headers_of(message: MQTTMessage, wall: Callable[[], float] = time.time) -> dict[str, str]:
    """The headers of a received message. What the sender states as a property only is an attribute too."""
    properties = message.properties
    pairs = [(name.lower(), value) for name, value in getattr(properties, "UserProperty", ())]
    is_event = any(name == "specversion" for name, _ in pairs)
    headers = {(_incoming(name) if is_event else _prefixed(name)): value for name, value in pairs}
    if (content_type := getattr(properties, "ContentType", None)) is not None:
        headers.setdefault("content-type", content_type)
    prefix = "ce_" if "ce_specversion" in headers else ""
    if (topic := getattr(properties, "ResponseTopic", None)) is not None:
        headers.setdefault("ce_replyto" if prefix else "reply-to", topic)
    if (correlation := getattr(properties, "CorrelationData", None)) is not None:
        headers.setdefault(f"{prefix}correlationid", correlation.decode("utf-8", "backslashreplace"))
    expiry = getattr(properties, "MessageExpiryInterval", None)
    if expiry is not None and "ce_expirytime" not in headers:
        headers.setdefault(f"{prefix}deadline", format_time(wall() + expiry))
    return headers


def properties_of(message: BrokerMessage, wall: Callable[[], float] = time.time) -> Any:
    """The properties of a message to publish.

    Raises `ValueError`, `MQTTException` and `struct.error` for texts that MQTT cannot carry.
    """
    made: Any = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    headers: Mapping[str, str] = message.headers
    made.UserProperty = [(_outgoing(name), value) for name, value in headers.items() if name != "content-type"]
    if message.key and "ce_partitionkey" not in headers:
        made.UserProperty = ("partitionkey", message.key.decode("utf-8", "backslashreplace"))  # adds one
    if content_type := headers.get("content-type"):
        made.ContentType = content_type
    if topic := headers.get("ce_replyto"):
        made.ResponseTopic = topic
    if correlation := headers.get("ce_correlationid"):
        made.CorrelationData = correlation.encode()
    if (deadline := headers.get("ce_deadline")) and (at := parse(deadline)) is not None:
        made.MessageExpiryInterval = min(LONGEST_EXPIRY, max(1, ceil(at - wall())))
    return made


def _incoming(name: str) -> str:
    name = _prefixed(name)
    is_attribute = _ATTRIBUTE.fullmatch(name) is not None and name not in _NO_ATTRIBUTES
    return f"ce_{name}" if is_attribute else name


def _prefixed(name: str) -> str:
    return f"ce_{name[3:]}" if name.startswith("ce-") else name


def _outgoing(name: str) -> str:
    return name[3:] if name.startswith("ce_") else name
