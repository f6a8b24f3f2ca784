"""A connection to RabbitMQ that is opened again after its loss. A channel is not: its delivery tags end with it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

from aiormq import AMQPError, ChannelNotFoundEntity, Connection
from aiormq.abc import AbstractChannel
from yarl import URL

from adapters.brokers.base import BrokerUnavailable, credentials_of, servers_of, tls_of
from config.schema.bus import BrokerConfig

CONNECT = 10.0
ANSWERS_WITHIN = 30.0
CLOSING = 2.0
HEARTBEAT = 10
"""Seconds between heartbeats; a connection without any for three times as long is lost."""
UNAVAILABLE = (AMQPError, OSError, TimeoutError, RuntimeError, asyncio.InvalidStateError)
"""The library reports a closed channel or connection with any of these, or with a bare `Exception`."""
logging.getLogger("aiormq").setLevel(logging.CRITICAL)  # the callers report its errors


class RabbitConnection:
    """One connection at a time to any server of a cluster."""

    def __init__(self, config: BrokerConfig, purpose: str) -> None:
        self._config = config
        self._purpose = purpose
        self._servers = servers_of(config)
        self._turn = 0
        self._opening = asyncio.Lock()
        self._connection: Connection | None = None

    async def channel(self, *, confirms: bool = False) -> AbstractChannel:
        """A new channel. Raises `BrokerUnavailable`."""
        async with answering():
            connection = await self._open()
            return await connection.channel(publisher_confirms=confirms)

    @asynccontextmanager
    async def brief_channel(self) -> AsyncIterator[AbstractChannel]:
        """A channel for a few calls, one of which may fail and close it. Raises `BrokerUnavailable`."""
        channel = await self.channel()
        try:
            async with answering():
                yield channel
        finally:
            await close(channel)

    async def _open(self) -> Connection:
        async with self._opening:
            if self._connection is not None and self._connection.is_opened:
                return self._connection
            await self.aclose()
            errors: list[BrokerUnavailable] = []
            for _ in self._servers:
                server = self._servers[self._turn % len(self._servers)]
                try:
                    self._connection = await self._connect(server)
                except BrokerUnavailable as error:
                    errors.append(error)
                    self._turn += 1
                else:
                    return self._connection
            raise errors[-1]

    async def _connect(self, server: str) -> Connection:
        async with answering(CONNECT):
            tls = tls_of(self._config)
            connection = Connection(self._url(server, "amqp" if tls is None else "amqps"), context=tls)
            try:
                await connection.connect()
            except BaseException:
                await close(connection)
                raise
            return connection

    def _url(self, server: str, scheme: str) -> URL:
        user, password = credentials_of(self._config)
        path = self._config.url.partition("://")[2].partition("/")[2]
        base = URL(f"{scheme}://{server}/{path}", encoded=True)
        named = base.with_user(user or "guest").with_password("guest" if password is None else password)
        return named.with_query(heartbeat=str(HEARTBEAT), name=f"headrace {self._purpose}")

    async def aclose(self) -> None:
        """Close the connection and its channels."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await close(connection)


@asynccontextmanager
async def answering(seconds: float | None = None) -> AsyncIterator[None]:
    """Calls that the broker answers within some time. Raises `BrokerUnavailable`."""
    try:
        async with asyncio.timeout(ANSWERS_WITHIN if seconds is None else seconds):
            yield
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise BrokerUnavailable("RabbitMQ: the channel is closed") from None  # the library cancels what waits for it
    except Exception as error:
        if not is_loss(error):
            raise
        raise unavailable(error) from None


def is_loss(error: BaseException) -> bool:
    """Whether the library reports a closed channel or connection. Calls in flight end with a bare `Exception`."""
    return isinstance(error, UNAVAILABLE) or type(error) is Exception


async def close(closable: Connection | AbstractChannel) -> None:
    """Close a channel or a connection, in a short time."""
    with suppress(BrokerUnavailable):  # it is closed, or the broker has gone
        async with answering(CLOSING):
            await closable.close()


def unavailable(error: BaseException) -> BrokerUnavailable:
    """The error for callers."""
    return BrokerUnavailable(f"RabbitMQ: {type(error).__name__}: {error}"[:300])


# The queues of topics. A topic is a routing key of the exchange `amq.topic`, which every virtual host has.

EXCHANGE = "amq.topic"
GROUP = "headrace"
"""The group whose queues have the names of their topics."""
LONGEST_WORK = 7 * 86400_000
"""Milliseconds after which the broker takes a message back: a stuck model is no reason (since RabbitMQ 3.12)."""
MOST_DELIVERIES = 1_000_000
"""The broker discards no message for its deliveries: this gateway ends it with a reason before."""
QUORUM: Mapping[str, str | int] = {
    "x-queue-type": "quorum",
    "x-delivery-limit": MOST_DELIVERIES,
    "x-consumer-timeout": LONGEST_WORK,
}
MOST_IN_INBOX = 100_000


def queue_of(topic: str, group: str = GROUP) -> str:
    """The name of the queue of a group."""
    return topic if group == GROUP else f"{topic}.{group}"


async def declare(connection: RabbitConnection, topic: str, queue: str) -> None:
    """Create the queue if it is missing, and bind it to the topic. Raises `BrokerUnavailable`."""
    if await ready(connection, queue) is None:
        async with connection.brief_channel() as channel:
            await channel.queue_declare(queue, durable=True, arguments=dict(QUORUM))
    async with connection.brief_channel() as channel:
        await channel.queue_bind(queue, EXCHANGE, topic)


async def declare_inbox(channel: AbstractChannel, topic: str) -> str:
    """Create a queue that ends with the connection. Returns its name."""
    declared = await channel.queue_declare(
        "", exclusive=True, auto_delete=True, arguments={"x-max-length": MOST_IN_INBOX}
    )
    name = declared.queue
    if not name:
        raise BrokerUnavailable("RabbitMQ: it has not named a queue")
    await channel.queue_bind(name, EXCHANGE, topic)
    return name


async def ready(connection: RabbitConnection, queue: str) -> int | None:
    """The number of messages that no member has received; None if the queue does not exist."""
    async with connection.brief_channel() as channel:
        try:
            declared = await channel.queue_declare(queue, passive=True)
        except ChannelNotFoundEntity:
            return None
        return declared.message_count or 0
