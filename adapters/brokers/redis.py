"""Redis Streams: a consumer group whose unacknowledged messages are claimed after a pause.

The field `data` of an entry is the body, `key` the key; all other fields are headers.
"""

import asyncio
import secrets
import ssl
import time
from collections.abc import Mapping, Sequence
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.connection import ConnectionPool, SSLConnection
from redis.exceptions import NoPermissionError, RedisError, ResponseError

from adapters.brokers.base import (
    BrokerDelivery,
    BrokerMessage,
    BrokerUnavailable,
    PublishEnd,
    SubscriptionPlan,
    TopicRefused,
    credentials_of,
    end_of,
    tls_of,
    together,
)
from config.schema.bus import BrokerConfig

BODY, KEY = b"data", b"key"
CONNECT = 5.0
WRONG_TYPE = "WRONGTYPE"
"""The begin of the error of a key that is no stream."""
ANSWERS_WITHIN = 10.0
MOST_READ = 1000
IDLE_CONSUMER = 3600_000
"""Milliseconds after which a consumer of a process that ended is removed, if it has no message."""


def make(config: BrokerConfig) -> "RedisStreams":
    """The client of one server."""
    return RedisStreams(config)


class RedisStreams:
    """A pool of connections."""

    def __init__(self, config: BrokerConfig) -> None:
        user, password = credentials_of(config)
        tls, url = tls_of(config), config.url
        url = url.replace("redis+unix:", "unix://", 1) if url.startswith("redis+unix:") else url
        self.pool = ConnectionPool.from_url(
            f"rediss{url.removeprefix('redis')}" if tls else url,
            protocol=2,
            socket_connect_timeout=CONNECT,
            socket_timeout=ANSWERS_WITHIN,
            **({"username": user} if user else {}),
            **({"password": password} if password else {}),
            **({"context": tls} if tls else {}),
        )
        if tls:
            self.pool.connection_class = _TlsConnection
        self.redis = Redis(connection_pool=self.pool)
        self.redis.response_callbacks.clear()  # plain lists, as Redis sends them

    async def open(self) -> None:
        await self.run("PING")

    async def run(self, *command: Any) -> Any:
        """One command. Raises `BrokerUnavailable`; an error of Redis about the command is `ResponseError`."""
        try:
            return await self.redis.execute_command(*command)  # type: ignore[no-untyped-call]
        except ResponseError:
            raise
        except (RedisError, OSError, TimeoutError) as error:
            raise unavailable(error) from None

    async def subscribe(self, plan: SubscriptionPlan) -> "RedisSubscription":
        made = RedisSubscription(self, plan)
        await made.create_group()
        return made

    async def listen(self, topic: str) -> "RedisInbox":
        last = await self.run("XREVRANGE", topic, "+", "-", "COUNT", 1)
        return RedisInbox(self, topic, last[0][0] if last else b"0-0")

    async def publish(self, messages: Sequence[BrokerMessage]) -> list[PublishEnd]:
        pipeline, sent = self.redis.pipeline(transaction=False), list[int]()
        ends: list[PublishEnd] = [None] * len(messages)
        for at, message in enumerate(messages):
            try:
                command = ("XADD", message.topic.encode(), "*", *_fields(message))
            except UnicodeError as error:
                ends[at] = end_of("Redis", error)
                continue
            pipeline.execute_command(*command)
            sent.append(at)
        try:
            replies = await pipeline.execute(raise_on_error=False)
        except (RedisError, OSError, TimeoutError) as error:
            raise unavailable(error) from None
        for at, reply in zip(sent, replies, strict=True):
            if isinstance(reply, Exception):
                ends[at] = _refusal(reply)
        return together(ends)

    async def aclose(self) -> None:
        await self.redis.aclose()
        await self.pool.disconnect()


class RedisSubscription:
    """One consumer of a group."""

    def __init__(self, client: RedisStreams, plan: SubscriptionPlan) -> None:
        self._client = client
        self._plan = plan
        self._name = f"headrace-{secrets.token_hex(6)}"
        self._claim_at = 0.0
        self._cursor = b"0-0"

    async def create_group(self) -> None:
        """Create the stream and the group if they are missing. Raises `BrokerUnavailable`."""
        start = "0" if self._plan.start == "earliest" else "$"
        try:
            await self._client.run("XGROUP", "CREATE", self._plan.topic, self._plan.group, start, "MKSTREAM")
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise unavailable(error) from None

    async def receive(self, most: int, patience: float) -> list[BrokerDelivery]:
        if not most:
            await asyncio.sleep(patience)
            return []
        try:
            claimed = await self._abandoned(most)
            return claimed or await self._new(most, patience)
        except ResponseError as error:
            if not str(error).startswith("NOGROUP"):
                raise unavailable(error) from None
            await self.create_group()  # Redis has lost its data, or the stream was deleted
            return []

    async def _new(self, most: int, patience: float) -> list[BrokerDelivery]:
        plan = self._plan
        block = max(1, int(patience * 1000))
        command = ("XREADGROUP", "GROUP", plan.group, self._name, "COUNT", most, "BLOCK", block, "STREAMS", plan.topic)
        streams = await self._client.run(*command, ">")
        entries = streams[0][1] if streams else []
        return [_delivery(self._plan.topic, id_, fields, 1) for id_, fields in entries]

    async def _abandoned(self, most: int) -> list[BrokerDelivery]:
        """Messages of members that have not renewed them."""
        now = time.monotonic()
        if now < self._claim_at:
            return []
        plan, idle = self._plan, int(self._plan.ack_wait * 1000)
        command = ("XAUTOCLAIM", plan.topic, plan.group, self._name, idle, self._cursor, "COUNT", most)
        self._cursor, entries, *_ = await self._client.run(*command)
        if self._cursor == b"0-0":
            self._claim_at = now + plan.ack_wait / 4
            await self._remove_idle_consumers()
        entries = [(id_, fields) for id_, fields in entries if fields is not None]
        return [_delivery(self._plan.topic, id_, fields, await self._count(id_)) for id_, fields in entries]

    async def _count(self, id_: bytes) -> int:
        pending = await self._client.run("XPENDING", self._plan.topic, self._plan.group, id_, id_, 1)
        return int(pending[0][3]) if pending else 0

    async def settle(self, deliveries: Sequence[BrokerDelivery]) -> None:
        await self._on("XACK", self._plan.topic, self._plan.group, *(delivery.handle for delivery in deliveries))

    async def renew(self, deliveries: Sequence[BrokerDelivery]) -> None:
        ids = [delivery.handle for delivery in deliveries]
        await self._on("XCLAIM", self._plan.topic, self._plan.group, self._name, 0, *ids, "JUSTID")

    async def release(self, deliveries: Sequence[BrokerDelivery]) -> None:
        """Make the messages as old as those of a member that has died."""
        ids, idle = [delivery.handle for delivery in deliveries], int(self._plan.ack_wait * 1000)
        await self._on("XCLAIM", self._plan.topic, self._plan.group, self._name, 0, *ids, "IDLE", idle, "JUSTID")

    async def _on(self, *command: Any) -> Any:
        try:
            return await self._client.run(*command)
        except ResponseError as error:
            if str(error).startswith("NOGROUP"):
                return None
            raise unavailable(error) from None

    async def lag(self) -> int | None:
        try:
            groups = await self._client.run("XINFO", "GROUPS", self._plan.topic)
        except (ResponseError, BrokerUnavailable):
            return None
        for fields in groups:
            group = dict(zip(fields[::2], fields[1::2], strict=True))
            if group.get(b"name") == self._plan.group.encode() and group.get(b"lag") is not None:
                return int(group[b"lag"]) + int(group[b"pending"])
        return None

    async def _remove_idle_consumers(self) -> None:
        for fields in await self._client.run("XINFO", "CONSUMERS", self._plan.topic, self._plan.group):
            each = dict(zip(fields[::2], fields[1::2], strict=True))
            if not each[b"pending"] and each[b"idle"] > IDLE_CONSUMER and each[b"name"] != self._name.encode():
                await self._client.run("XGROUP", "DELCONSUMER", self._plan.topic, self._plan.group, each[b"name"])

    async def aclose(self) -> None:
        """The consumer stays while it has messages: they would be deleted with it."""


class RedisInbox:
    """The entries of a stream after the newest one."""

    def __init__(self, client: RedisStreams, topic: str, last: bytes) -> None:
        self._client = client
        self._topic = topic
        self._last = last

    async def receive(self, patience: float) -> list[BrokerDelivery]:
        block = max(1, int(patience * 1000))
        try:
            streams = await self._client.run(
                "XREAD", "COUNT", MOST_READ, "BLOCK", block, "STREAMS", self._topic, self._last
            )
        except ResponseError as error:
            raise unavailable(error) from None
        entries = streams[0][1] if streams else []
        if entries:
            self._last = entries[-1][0]
        return [_delivery(self._topic, id_, fields, 1) for id_, fields in entries]

    async def aclose(self) -> None:
        """There is nothing to leave."""


def _delivery(topic: str, id_: bytes, fields: Any, count: int) -> BrokerDelivery:
    pairs: Mapping[bytes, bytes] = dict(zip(fields[::2], fields[1::2], strict=True))
    return BrokerDelivery(
        topic,
        pairs.get(BODY, b""),
        {
            name.decode(errors="replace").lower(): value.decode(errors="replace")
            for name, value in pairs.items()
            if name not in (BODY, KEY)
        },
        key=pairs.get(KEY, b""),
        place=id_.decode(),
        handle=id_,
        count=count,
    )


def _fields(message: BrokerMessage) -> list[bytes]:
    """Raises `UnicodeError`."""
    fields = [BODY, message.body]
    if message.key:
        fields += (KEY, message.key)
    for name, value in message.headers.items():
        fields += (name.encode(), value.encode())
    return fields


def _refusal(error: Exception) -> PublishEnd:
    """The end of a message after an error. Redis may be out of memory or read-only, which an operator can mend."""
    is_topic = isinstance(error, NoPermissionError) or str(error).startswith(WRONG_TYPE)
    return TopicRefused(f"Redis: {error}"[:300]) if is_topic else unavailable(error)


class _TlsConnection(SSLConnection):
    """A connection with a TLS context of ours."""

    def __init__(self, *, context: ssl.SSLContext, **fields: Any) -> None:
        super().__init__(**fields)
        self.ssl_context.context = context


def unavailable(error: BaseException) -> BrokerUnavailable:
    """The error for callers."""
    return BrokerUnavailable(f"Redis: {type(error).__name__}: {error}"[:300])
