"""One member of a group: its own session, and those of members that are gone, until their messages are done."""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import suppress
from random import sample

from paho.mqtt.client import MQTTMessage

from adapters.brokers.base import BrokerDelivery, BrokerUnavailable, SubscriptionPlan
from adapters.brokers.mqtt.connection import Connection, ConnectionPlan
from adapters.brokers.mqtt.session import MqttSession, Unsettled
from adapters.lasting import lasting
from config.schema.bus import BrokerConfig

log = logging.getLogger(__name__)
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
MOST_CONTINUED = 8
"""Sessions of other members that a member continues at the same time while messages wait here."""


class MqttMember:
    """`open`, then the methods of a subscription."""

    def __init__(self, config: BrokerConfig, plan: SubscriptionPlan) -> None:
        self._config = config
        self._plan = plan
        self._shared = f"$share/{plan.group.replace('/', '_')}/{plan.topic}"
        self._records = MemberRecords(config, plan)
        self._received = deque[BrokerDelivery]()
        self._arrived = asyncio.Event()
        self._own = self._session(self._new_id())
        self._continued = set[str]()
        self._session_ended = asyncio.Event()
        self._tasks = set[asyncio.Task[None]]()
        self._problem = "not connected"

    def _new_id(self) -> str:
        return f"headrace-{secrets.token_hex(8)}"

    def _session(self, client_id: str) -> MqttSession:
        return MqttSession(self._config, client_id, self._plan.ahead, self._deliver)

    def _deliver(self, delivery: BrokerDelivery) -> None:
        self._received.append(delivery)
        self._arrived.set()

    # ── life ──────────────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        """Begin a session. Raises `BrokerUnavailable`."""
        try:
            await self._join()
        except BaseException:
            await self._disconnect()
            raise
        self._spawn(lasting("MQTT session", self._stay))
        self._spawn(lasting("MQTT sessions of others", self._watch))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _join(self) -> None:
        """Connect the own session. Its record comes first: no session is without one."""
        await self._records.open()
        self._records.mine.add(self._own.client_id)
        await self._records.write([self._own.client_id], HERE)
        await self._own.connect()
        assert self._own.connection is not None
        await self._own.connection.subscribe(self._shared)

    async def _stay(self) -> None:
        """Connect again whenever the connection is lost."""
        pause = FIRST_PAUSE
        while True:
            if self._own.connected:
                pause = FIRST_PAUSE
                assert self._own.connection is not None
                await self._own.connection.lost.wait()
                self._problem = self._own.connection.reason
                if self._own.connection.taken_over:  # this member was taken for dead
                    self._records.mine.discard(self._own.client_id)
                    self._own.abandon()
                    self._own = self._session(self._new_id())
            try:
                await self._join()
            except BrokerUnavailable as error:
                self._problem = str(error)
                await self._own_closed()
                await asyncio.sleep(pause)
                pause = min(LONGEST_PAUSE, 2 * pause)

    async def _own_closed(self) -> None:
        if self._own.connection is not None:
            await self._own.connection.close()

    async def _watch(self) -> None:
        """Publish the records of this member's sessions, and continue the sessions of members that are gone."""
        while True:
            self._session_ended.clear()
            with suppress(BrokerUnavailable):
                await self._records.open()
                await self._records.write(list(self._records.mine), HERE)
                for client_id in self._continuable():
                    self._records.mine.add(client_id)
                    self._continued.add(client_id)
                    self._spawn(self._continue(client_id))
            with suppress(TimeoutError):
                async with asyncio.timeout(self._records.beat):
                    await self._session_ended.wait()

    def _continuable(self) -> list[str]:
        """Sessions of members that are gone. Random ones: several members begin with different sessions.

        While messages wait here, few: other members may be idle, and the broker may send all messages at once.
        """
        gone = self._records.gone()
        most = MOST_CONTINUED - len(self._continued) if self._received else MOST_CONTINUED
        return sample(gone, min(len(gone), max(0, most)))

    async def _continue(self, client_id: str) -> None:
        """Receive the messages of a session whose member is gone, then end the session."""
        session = self._session(client_id)
        try:
            await self._records.write([client_id], HERE)
            if await session.connect():
                assert session.connection is not None
                await session.connection.unsubscribe(self._shared)
                await session.ended(self._records.publish, self._plan.ack_wait)
            if session.connected:
                assert session.connection is not None
                await session.connection.close(forget=True)
                await self._records.remove(client_id)
        except BrokerUnavailable as error:
            log.info("the session %s of a member that is gone is continued later: %s", client_id, error)
        finally:
            session.abandon()
            self._records.mine.discard(client_id)
            self._continued.discard(client_id)
            self._session_ended.set()
            if session.connection is not None:
                await session.connection.close()

    async def aclose(self) -> None:
        """Leave: the other members continue the session, with all messages that are not acknowledged."""
        for task in (tasks := list(self._tasks)):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._disconnect()

    async def _disconnect(self) -> None:
        await self._own_closed()
        with suppress(BrokerUnavailable):
            await self._records.write([self._own.client_id], LEFT)
        await self._records.aclose()

    # ── messages ──────────────────────────────────────────────────────────────────────────────────────

    async def receive(self, most: int, patience: float) -> list[BrokerDelivery]:
        if not most:
            await asyncio.sleep(patience)
            return []
        if not self._received:
            self._arrived.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self._arrived.wait()
        made: list[BrokerDelivery] = []
        while self._received and len(made) < most:
            delivery = self._received.popleft()
            entry: Unsettled = delivery.handle
            if entry.session.has(entry):  # otherwise the broker sends it again, to this member or to another one
                made.append(delivery)
        if not made and not self._own.connected:
            raise BrokerUnavailable(f"MQTT: {self._problem}")
        return made

    async def settle(self, deliveries: Sequence[BrokerDelivery]) -> None:
        for delivery in deliveries:
            entry: Unsettled = delivery.handle
            entry.session.settle([entry])

    async def renew(self, deliveries: Sequence[BrokerDelivery]) -> None:
        """The records of the member are those of its messages."""

    async def release(self, deliveries: Sequence[BrokerDelivery]) -> None:
        """Messages that are not acknowledged are received by the member that continues the session."""

    async def lag(self) -> int | None:
        """MQTT does not report it."""
        return None


# Retained records of the members of a group: each states that it is there, and the others notice when it is gone.
#
# A record is a retained message on a topic of its session. Its member publishes it again and again; a session whose
# record is old, or says that its member has left, is continued by another member. A broker that restarts has the
# records of members that died in the meantime too.

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
