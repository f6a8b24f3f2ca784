"""The interface of a message broker, and what all brokers share: ends, credentials, TLS, and each broker's module.

A new broker is one module with `make(config) -> BrokerClient`, and a row in `MODULES`. A client reconnects by
itself: a method raises `BrokerUnavailable` while the broker cannot be reached, and the caller calls it again later.
Header names are lower-case; attributes of CloudEvents have the prefix `ce_` here, whatever prefix the broker's own
binding of CloudEvents has.
"""

import asyncio
import ssl
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib import import_module
from socket import socket
from typing import Any, Literal, NamedTuple, Protocol

from adapters.certificates import load_pair, read_pair, read_roots
from config.installing import installing
from config.schema.bus import BrokerConfig


class BrokerUnavailable(Exception):
    """The broker does not answer, or has lost this client's membership. The message is for operators."""


class MessageRejected(Exception):
    """The broker will never accept this message, for example because it is too large. The message is for operators."""


class MessageUnroutable(MessageRejected):
    """Nothing reads the topic of the message, so that the broker would discard it."""


class TopicRefused(MessageRejected):
    """The broker takes no message for the topic: it does not exist, is invalid, or is forbidden."""


PublishEnd = MessageRejected | BrokerUnavailable | None
"""None for a message that the broker has stored, and `BrokerUnavailable` for one that may be stored or not."""


class BrokerMessage(NamedTuple):
    """A message to publish."""

    topic: str
    body: bytes
    headers: Mapping[str, str]
    key: bytes = b""
    """Messages of one key stay in order. Empty: no order."""
    id: str = ""
    """The same for every copy of a message, for brokers that drop copies themselves."""


class BrokerDelivery:
    """One delivery of a message. `handle` is the broker's own."""

    __slots__ = ("body", "count", "handle", "headers", "key", "place", "topic")

    def __init__(
        self,
        topic: str,
        body: bytes,
        headers: Mapping[str, str],
        *,
        place: str,
        handle: Any,
        key: bytes = b"",
        count: int = 0,
    ) -> None:
        self.topic = topic
        self.body = body
        self.headers = headers
        self.key = key
        """The key by which messages are in order; empty without one."""
        self.count = count
        """Deliveries of the message, this one included; 0 if the broker does not count them."""
        self.place = place
        """The place of the message in its topic: the same for each delivery, and for no other message."""
        self.handle = handle


class SubscriptionPlan(NamedTuple):
    """What a subscription reads."""

    topic: str
    group: str
    start: Literal["earliest", "latest"] = "earliest"
    ahead: int = 64
    """The largest number of messages that `receive` may be called with."""
    ack_wait: float = 30.0
    """Seconds without `renew` after which the broker may deliver a message again."""
    retained: tuple[str, ...] = ()
    """Topics that this client publishes to, and whose messages wait for a reader: a broker that discards messages
    without a reader has a queue for them."""


class BrokerSubscription(Protocol):
    """The messages of one topic for one member of a group."""

    async def receive(self, most: int, patience: float) -> list[BrokerDelivery]:
        """At most `most` messages, as soon as there is one; none after `patience` seconds.

        With `most` 0 nothing is read, but the membership is preserved. Raises `BrokerUnavailable`.
        """
        ...

    async def settle(self, deliveries: Sequence[BrokerDelivery]) -> None:
        """Acknowledge messages: the broker never delivers them to the group again. Raises `BrokerUnavailable`."""
        ...

    async def renew(self, deliveries: Sequence[BrokerDelivery]) -> None:
        """Report that messages are still in work. Raises `BrokerUnavailable`."""
        ...

    async def release(self, deliveries: Sequence[BrokerDelivery]) -> None:
        """Return messages, so that another member receives them at once if the broker can do that."""
        ...

    async def lag(self) -> int | None:
        """Messages of the topic that the group has not acknowledged; None if the broker does not report it."""
        ...

    async def aclose(self) -> None:
        """Leave the group."""
        ...


class BrokerInbox(Protocol):
    """All messages of a topic that arrive from now on, for one reader that acknowledges none."""

    async def receive(self, patience: float) -> list[BrokerDelivery]:
        """Messages, as soon as there is one; none after `patience` seconds. Raises `BrokerUnavailable`."""
        ...

    async def aclose(self) -> None:
        """Stop reading."""
        ...


class BrokerClient(Protocol):
    """One connection, or one set of connections, to a broker."""

    async def open(self) -> None:
        """Connect. Raises `BrokerUnavailable`; it may be called again."""
        ...

    async def subscribe(self, plan: SubscriptionPlan) -> BrokerSubscription:
        """Join a group. Raises `BrokerUnavailable`."""
        ...

    async def listen(self, topic: str) -> BrokerInbox:
        """Read a topic beside all of its groups. Raises `BrokerUnavailable`."""
        ...

    async def publish(self, messages: Sequence[BrokerMessage]) -> list[PublishEnd]:
        """Publish messages. Returns the end of each: one that fails changes nothing for the others.

        Raises `BrokerUnavailable` if that is the end of all.
        """
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


# The ends of published messages. A message that fails changes nothing for the others of its batch.

_DATA = (ValueError, TypeError, OverflowError, RecursionError, struct.error)
"""Errors of the encoding of a message, such as a text that is not Unicode."""


async def publish_each(
    broker: str, messages: Sequence[BrokerMessage], publish: Callable[[BrokerMessage], Awaitable[PublishEnd]]
) -> list[PublishEnd]:
    """Publish messages at the same time, each by a call of its own. Raises as `together`."""
    results = await asyncio.gather(*map(publish, messages), return_exceptions=True)
    return together([end_of(broker, result) for result in results])


def together(ends: list[PublishEnd]) -> list[PublishEnd]:
    """The ends of a batch. Raises `BrokerUnavailable` if that is the end of all."""
    if ends and isinstance(ends[0], BrokerUnavailable) and all(isinstance(end, BrokerUnavailable) for end in ends):
        raise ends[0]
    return ends


def end_of(broker: str, result: BaseException | None) -> PublishEnd:
    """The end of a message whose call has returned or raised `result`."""
    if result is None or isinstance(result, MessageRejected | BrokerUnavailable):
        return result
    kind = MessageRejected if isinstance(result, _DATA) else BrokerUnavailable
    return kind(f"{broker}: {type(result).__name__}: {result}"[:300])


# Credentials and TLS of a broker, for its library.


def servers_of(config: BrokerConfig) -> list[str]:
    """The servers of the cluster as HOST or HOST:PORT."""
    return config.url.partition("://")[2].partition("/")[0].split(",")


def credentials_of(config: BrokerConfig) -> tuple[str | None, str | None]:
    """The user and the password."""
    user, password = config.username, config.password
    return (
        None if user is None else user.get_secret_value(),
        None if password is None else password.get_secret_value(),
    )


class _NamedContext(ssl.SSLContext):
    """Checks the server's certificate for `name`, whatever name a library gives."""

    name: str | None = None

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        return super().wrap_bio(incoming, outgoing, server_side, self.name or server_hostname, session)

    def wrap_socket(
        self,
        sock: socket,
        server_side: bool = False,
        do_handshake_on_connect: bool = True,
        suppress_ragged_eofs: bool = True,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLSocket:
        name = self.name or server_hostname
        return super().wrap_socket(sock, server_side, do_handshake_on_connect, suppress_ragged_eofs, name, session)


def tls_of(config: BrokerConfig) -> ssl.SSLContext | None:
    """The TLS context; None for plain text. Raises `OSError` for files that cannot be used."""
    tls = config.tls
    if tls is None:
        return None
    context = _NamedContext(ssl.PROTOCOL_TLS_CLIENT)
    context.name = tls.server_name
    if tls.ca is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(cadata=read_roots(tls.ca))
    if tls.cert is not None:
        load_pair(context, read_pair(tls.cert, tls.key))
    return context


MODULES = {
    "amqp": "adapters.brokers.rabbitmq.client",
    "kafka": "adapters.brokers.kafka",
    "mqtt": "adapters.brokers.mqtt.client",
    "nats": "adapters.brokers.nats",
    "redis": "adapters.brokers.redis",
    "sqs": "adapters.brokers.sqs.client",
}
"""The modules by the scheme of the URL. Each has `make(config)`; the extra has the name of the scheme."""


class BrokerLibraryMissing(Exception):
    """The library of a broker is not installed. The message names the extra."""


def make(config: BrokerConfig) -> BrokerClient:
    """The client of a broker, not connected. Raises `BrokerLibraryMissing`."""
    try:
        module = import_module(MODULES[config.scheme])
    except ModuleNotFoundError:
        raise BrokerLibraryMissing(f"{config.scheme}:// needs an extra: {installing(config.scheme)}") from None
    client: BrokerClient = module.make(config)
    return client
