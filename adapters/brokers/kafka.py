"""Kafka, by aiokafka.

A member that is full does not read: its heartbeats continue, so that the group is not rebalanced, and the library
buffers at most one fetch of each partition. The offset of a partition is committed up to the first message in work.
"""

import asyncio
import re
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import (
    CommitFailedError,
    IllegalStateError,
    InvalidMessageError,
    InvalidTopicError,
    KafkaError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

from adapters.brokers.base import (
    BrokerDelivery,
    BrokerMessage,
    BrokerUnavailable,
    MessageRejected,
    PublishEnd,
    SubscriptionPlan,
    TopicRefused,
    credentials_of,
    end_of,
    servers_of,
    tls_of,
    together,
)
from config.schema.bus import BrokerConfig

# The offset up to which all messages of a partition are done, while messages end in any order.


class OffsetWindow:
    """The messages of one partition that this member has received and not committed."""

    __slots__ = ("_done", "_open", "next")

    def __init__(self, first: int) -> None:
        self.next = first
        """The offset to commit: all messages below it are done."""
        self._open: list[int] = []
        self._done: set[int] = set()

    @property
    def size(self) -> int:
        """Messages at and above `next`."""
        return len(self._open)

    def begin(self, offset: int) -> None:
        """A message is received. Offsets rise, with gaps."""
        heappush(self._open, offset)

    def end(self, offset: int) -> bool:
        """A message is done. Returns whether `next` has moved."""
        self._done.add(offset)
        moved = False
        while self._open and self._open[0] in self._done:
            last = heappop(self._open)
            self._done.discard(last)
            self.next, moved = last + 1, True
        return moved


MOST_AHEAD = 10_000
"""Messages of a partition that may be received beyond its oldest unfinished message."""
LONGEST_PAUSE = 7 * 86400_000
"""Milliseconds without a read after which the member leaves the group: a stuck model is no reason to leave."""
ANSWERS_WITHIN = 30.0
LISTED_WITHIN = 5.0
"""Seconds until a topic that the cluster does not list counts as absent."""
_TOPIC = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
MAX_REQUEST = 16 * 1024**2
_REJECTED = (MessageSizeTooLargeError, RecordListTooLargeError, InvalidMessageError)
_REFUSED_TOPIC = (TopicAuthorizationFailedError, InvalidTopicError)


class _Place(NamedTuple):
    """The partition of a delivery, under the assignment of its time."""

    partition: TopicPartition
    window: OffsetWindow
    offset: int


def make(config: BrokerConfig) -> "KafkaClient":
    """The client of one cluster."""
    return KafkaClient(config)


class KafkaClient:
    """A producer, and the consumers of its subscriptions."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._producer: AIOKafkaProducer | None = None

    def settings(self) -> dict[str, Any]:
        """The arguments of consumers and producers."""
        user, password = credentials_of(self._config)
        context = tls_of(self._config)
        protocol = ("SASL_" if user else "") + ("SSL" if context else "PLAINTEXT")
        made = {"bootstrap_servers": servers_of(self._config), "security_protocol": protocol, "ssl_context": context}
        if user:
            made |= {
                "sasl_mechanism": self._config.mechanism,
                "sasl_plain_username": user,
                "sasl_plain_password": password,
            }
        return made

    async def open(self) -> None:
        if self._producer is not None:
            return
        producer = AIOKafkaProducer(**self.settings(), acks="all", max_request_size=MAX_REQUEST)
        try:
            await producer.start()
        except BaseException as error:
            await producer.stop()
            raise unavailable(error) from None
        self._producer = producer

    async def subscribe(self, plan: SubscriptionPlan) -> "KafkaSubscription":
        made = KafkaSubscription(self, plan)
        await made.open()
        return made

    async def listen(self, topic: str) -> "KafkaInbox":
        made = KafkaInbox(self, topic)
        await made.open()
        return made

    async def publish(self, messages: Sequence[BrokerMessage]) -> list[PublishEnd]:
        producer = self._producer
        if producer is None:
            raise BrokerUnavailable("Kafka: not connected")
        topics = list({message.topic for message in messages})
        refusals = await asyncio.gather(*(_refusal_of(producer, topic) for topic in topics))
        by_topic = dict(zip(topics, refusals, strict=True))
        ends = [by_topic[message.topic] for message in messages]
        sent: list[tuple[int, Any]] = []
        for at, message in enumerate(messages):
            if ends[at] is None:
                try:
                    fields = [(name, value.encode()) for name, value in message.headers.items()]
                    future = await producer.send(message.topic, message.body, message.key or None, headers=fields)
                except (KafkaError, OSError, ValueError) as error:
                    ends[at] = _end_of(error)
                else:
                    sent.append((at, future))
        results = await asyncio.gather(*(future for _, future in sent), return_exceptions=True)
        for (at, _), result in zip(sent, results, strict=True):
            ends[at] = None if not isinstance(result, BaseException) else _end_of(result)
        return together(ends)

    async def aclose(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.stop()


class KafkaSubscription(ConsumerRebalanceListener):  # type: ignore[misc]
    """One member of a group."""

    def __init__(self, client: KafkaClient, plan: SubscriptionPlan) -> None:
        self._plan = plan
        self._windows: dict[TopicPartition, OffsetWindow] = {}
        self._consumer = AIOKafkaConsumer(
            **client.settings(),
            group_id=plan.group,
            enable_auto_commit=False,
            auto_offset_reset=plan.start,
            max_poll_interval_ms=LONGEST_PAUSE,
        )

    async def open(self) -> None:
        """Join the group. Raises `BrokerUnavailable`."""
        try:
            await self._consumer.start()
            self._consumer.subscribe([self._plan.topic], listener=self)
        except BaseException as error:
            await self._consumer.stop()
            raise unavailable(error) from None

    # ── membership ────────────────────────────────────────────────────────────────────────────────────

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Forget the partitions: the messages in work are delivered to another member, which waits for them."""
        for partition in revoked:
            self._windows.pop(partition, None)

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Begin at the committed offsets."""

    # ── messages ──────────────────────────────────────────────────────────────────────────────────────

    async def receive(self, most: int, patience: float) -> list[BrokerDelivery]:
        full = {partition for partition, window in self._windows.items() if window.size >= MOST_AHEAD}
        partitions = self._consumer.assignment() - full if full else set()
        if not most or (full and not partitions):
            await asyncio.sleep(patience)  # the heartbeats of the member continue
            return []
        try:
            records = await self._consumer.getmany(*partitions, timeout_ms=int(patience * 1000), max_records=most)
        except (KafkaError, OSError) as error:
            raise unavailable(error) from None
        return [self._delivery(partition, record) for partition, batch in records.items() for record in batch]

    def _delivery(self, partition: TopicPartition, record: Any) -> BrokerDelivery:
        window = self._windows.get(partition)
        if window is None:
            window = self._windows[partition] = OffsetWindow(record.offset)
        window.begin(record.offset)
        return _delivery(partition, record, _Place(partition, window, record.offset))

    async def settle(self, deliveries: Sequence[BrokerDelivery]) -> None:
        moved: dict[TopicPartition, int] = {}
        for delivery in deliveries:
            place: _Place = delivery.handle
            is_current = self._windows.get(place.partition) is place.window
            if place.window.end(place.offset) and is_current:
                moved[place.partition] = place.window.next
        if not moved:
            return
        try:
            await self._consumer.commit(moved)
        except (CommitFailedError, IllegalStateError):
            return  # the group is being rebalanced: the messages are delivered again, and recognised
        except (KafkaError, OSError) as error:
            raise unavailable(error) from None

    async def renew(self, deliveries: Sequence[BrokerDelivery]) -> None:
        """The heartbeats of the member are those of its messages."""

    async def release(self, deliveries: Sequence[BrokerDelivery]) -> None:
        """Messages that are not committed are delivered to the next member."""

    async def lag(self) -> int | None:
        try:
            ends = await self._consumer.end_offsets(self._consumer.assignment())
            begun = {partition: window.next for partition, window in self._windows.items()}
            positions = {
                partition: begun[partition] if partition in begun else await self._consumer.committed(partition) or 0
                for partition in ends
            }
        except (KafkaError, OSError):
            return None
        return sum(max(0, int(end) - positions[partition]) for partition, end in ends.items())

    async def aclose(self) -> None:
        await self._consumer.stop()


class KafkaInbox:
    """All partitions of a topic, without a group."""

    def __init__(self, client: KafkaClient, topic: str) -> None:
        self._consumer = AIOKafkaConsumer(topic, **client.settings(), group_id=None, auto_offset_reset="latest")

    async def open(self) -> None:
        """Begin at the ends of the partitions. Raises `BrokerUnavailable`."""
        try:
            async with asyncio.timeout(ANSWERS_WITHIN):
                await self._consumer.start()
                await self._consumer.seek_to_end()
                for partition in self._consumer.assignment():
                    await self._consumer.position(partition)
        except BaseException as error:
            await self._consumer.stop()
            raise unavailable(error) from None

    async def receive(self, patience: float) -> list[BrokerDelivery]:
        try:
            records = await self._consumer.getmany(timeout_ms=int(patience * 1000))
        except (KafkaError, OSError) as error:
            raise unavailable(error) from None
        return [_delivery(partition, record, None) for partition, batch in records.items() for record in batch]

    async def aclose(self) -> None:
        await self._consumer.stop()


async def _refusal_of(producer: AIOKafkaProducer, topic: str) -> PublishEnd:
    """None if messages may be sent to a topic."""
    if _TOPIC.fullmatch(topic) is None:
        return TopicRefused(f"Kafka: {topic[:128]!r} is not a topic")
    try:
        async with asyncio.timeout(LISTED_WITHIN):  # the broker may create the topic at the first request
            await producer.partitions_for(topic)
    except (UnknownTopicOrPartitionError, TimeoutError) as error:
        try:
            absent = await producer.client.force_metadata_update() and topic not in producer.client.cluster.topics()
        except (KafkaError, OSError):
            absent = False
        return TopicRefused(f"Kafka: there is no topic {topic}") if absent else _end_of(error)
    except (KafkaError, OSError) as error:
        return _end_of(error)
    return None


def _end_of(error: BaseException) -> PublishEnd:
    if isinstance(error, _REFUSED_TOPIC):
        return TopicRefused(f"Kafka: {type(error).__name__}: {error}"[:300])
    return end_of("Kafka", MessageRejected(f"Kafka: {error}"[:300]) if isinstance(error, _REJECTED) else error)


def _delivery(partition: TopicPartition, record: Any, handle: _Place | None) -> BrokerDelivery:
    return BrokerDelivery(
        record.topic,
        record.value or b"",
        {name.lower(): value.decode(errors="replace") for name, value in record.headers if value is not None},
        key=record.key or b"",
        place=f"{partition.partition}/{record.offset}",
        handle=handle,
    )


def unavailable(error: BaseException) -> BaseException:
    """The error for callers; an end of the task stays what it is."""
    if isinstance(error, KafkaError | OSError | TimeoutError):
        return BrokerUnavailable(f"Kafka: {type(error).__name__}: {error}"[:300])
    return error
