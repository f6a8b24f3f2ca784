"""One session of a shared subscription. The broker stores its messages while no client is connected to it.

MQTT requires that messages are acknowledged in the order in which they arrived: a message that is done waits for those
before it. After a new connection the broker sends all unacknowledged messages again; those in work are recognised by
their packet identifiers, and not delivered twice.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from paho.mqtt.client import MQTTMessage

from adapters.brokers.base import BrokerDelivery
from adapters.brokers.mqtt.connection import Connection, ConnectionPlan
from adapters.brokers.mqtt.properties import headers_of
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
