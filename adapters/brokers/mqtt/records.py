"""Retained records of the members of a group: each states that it is there, and the others notice when it is gone.

A record is a retained message on a topic of its session. Its member publishes it again and again; a session whose
record is old, or says that its member has left, is continued by another member. A broker that restarts has the records
of members that died in the meantime too.
"""

import asyncio
from collections.abc import Iterable

from paho.mqtt.client import MQTTMessage

from adapters.brokers.base import BrokerUnavailable, SubscriptionPlan
from adapters.brokers.mqtt.connection import Connection, ConnectionPlan
from config.schema.bus import BrokerConfig

PREFIX = "headrace/members"
HERE, LEFT, NONE = b"here", b"left", b""
BEATS = 4
"""Publications of a record in the time after which it is old."""


class MemberRecords:
    """The records of one group, as one member reads and writes them."""

    def __init__(self, config: BrokerConfig, plan: SubscriptionPlan) -> None:
        self._config = config
        self._old = plan.ack_wait
        self._topic = f"{PREFIX}/{plan.group}/{plan.topic}/"
        self._connection: Connection | None = None
        self._seen: dict[str, tuple[float, bytes]] = {}
        self.mine = set[str]()
        """The sessions of this member."""

    @property
    def beat(self) -> float:
        """Seconds between two publications."""
        return self._old / BEATS

    async def open(self) -> None:
        """Connect if necessary, and read the records. Raises `BrokerUnavailable`."""
        if self._connection is not None and not self._connection.lost.is_set():
            return
        self._seen.clear()
        connection = Connection(self._config, ConnectionPlan(), self._received)
        await connection.open()
        self._connection = connection
        await connection.subscribe(f"{self._topic}+", retained=True)

    def _received(self, message: MQTTMessage) -> None:
        client_id = message.topic.removeprefix(self._topic)
        if message.payload == NONE:
            self._seen.pop(client_id, None)
        else:
            self._seen[client_id] = (asyncio.get_running_loop().time(), bytes(message.payload))

    def gone(self) -> list[str]:
        """The sessions whose members have left or died."""
        before = asyncio.get_running_loop().time() - self._old
        return [
            client_id
            for client_id, (at, state) in self._seen.items()
            if client_id not in self.mine and (state == LEFT or at < before)
        ]

    async def write(self, client_ids: Iterable[str], state: bytes) -> None:
        """Publish records, all at once: in turn, those of many sessions are late. Raises `BrokerUnavailable`."""
        await asyncio.gather(
            *(self.publish(f"{self._topic}{client_id}", state, retain=True) for client_id in client_ids)
        )

    async def remove(self, client_id: str) -> None:
        """Remove the record of a session that has ended. Raises `BrokerUnavailable`."""
        await self.write([client_id], NONE)
        self._seen.pop(client_id, None)  # also before the broker has sent the removal here

    async def publish(self, topic: str, body: bytes = HERE, *, retain: bool = False) -> None:
        """Publish a message by the connection of the records. Raises `BrokerUnavailable`."""
        if self._connection is None:
            raise BrokerUnavailable("MQTT: not connected")
        await self._connection.publish(topic, body, None, retain=retain)

    async def aclose(self) -> None:
        """Disconnect."""
        if self._connection is not None:
            await self._connection.close()
