"""One message in work, and its end."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from math import inf
from typing import Literal, NamedTuple

from adapters.brokers.base import BrokerDelivery, BrokerMessage
from adapters.http1.message import Headers
from adapters.wire.cloudevents import CloudEvent
from gateway.auth.keys import Principal

Outcome = Literal["answered", "failed", "dead", "duplicate", "cancelled"]
OUTCOMES: tuple[Outcome, ...] = ("answered", "failed", "dead", "duplicate", "cancelled")
MOST_REASONS = 100
OTHER = "other"


class MessageWork:
    """A message that this process has received and not settled."""

    __slots__ = (
        "deliveries", "ends_at", "event", "failures", "headers", "id", "order_key", "ordered", "principal",
        "renewed_at", "reply_topic", "standing", "target", "task",
    )  # fmt: skip

    def __init__(
        self,
        delivery: BrokerDelivery,
        event: CloudEvent,
        id: str,
        principal: Principal,
        reply_topic: str,
        headers: Headers,
        target: str,
        ends_at: float = inf,
    ) -> None:
        self.deliveries = [delivery]
        """The message, and further deliveries of the same id that came while it was in work."""
        self.event = event
        self.id = id
        """The id in the table: a hash of the binding, the source and the id of the event."""
        self.principal = principal
        self.reply_topic = reply_topic
        self.headers = headers
        """The headers of the request."""
        self.target = target
        """The path of the API."""
        self.task: asyncio.Task[None] | None = None
        """The task that runs it."""
        self.ends_at = ends_at
        """Loop time of the deadline."""
        self.failures = 0
        self.renewed_at = 0.0
        """Loop time of the last claim or renewal of the id."""
        self.standing = 0.0
        """The claim, as the table reported it last."""
        self.order_key = delivery.key or event.extensions.get("partitionkey", "").encode()
        """The key of the message, and of its answer."""
        self.ordered = False
        """Whether messages of the same key wait for the end of this one."""

    @property
    def delivery(self) -> BrokerDelivery:
        """The first delivery."""
        return self.deliveries[0]


class DeadReason(NamedTuple):
    """The reason why a message is a dead letter. `code` is stable."""

    code: str
    message: str


class MessageEnd(NamedTuple):
    """The end of a message: what is published before it is settled."""

    outcome: Outcome
    deliveries: Sequence[BrokerDelivery]
    messages: Sequence[BrokerMessage] = ()
    work: MessageWork | None = None
    """None for a message without a valid envelope."""
    dead: DeadReason | None = None


class BindingCounts:
    """Counts that only grow."""

    def __init__(self) -> None:
        self.outcomes = Counter[str]()
        self.dead = Counter[str]()
        """Dead letters by reason."""
        self.redeliveries = 0

    def received(self, delivery: BrokerDelivery) -> None:
        """Count a delivery."""
        self.redeliveries += delivery.count > 1

    def ended(self, end: MessageEnd) -> None:
        """Count an end."""
        self.outcomes[end.outcome] += 1
        if end.dead is not None:
            code = end.dead.code
            self.dead[code if code in self.dead or len(self.dead) < MOST_REASONS else OTHER] += 1
