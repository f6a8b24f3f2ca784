"""The interface of a message broker.

A new broker is one module with `make(config) -> BrokerClient`, and a row in `registry.py`. A client reconnects by
itself: a method raises `BrokerUnavailable` while the broker cannot be reached, and the caller calls it again later.
Header names are lower-case; attributes of CloudEvents have the prefix `ce_` here, whatever prefix the broker's own
binding of CloudEvents has.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol


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
