"""The counts of one binding."""

from collections import Counter

from adapters.brokers.base import BrokerDelivery
from gateway.features.bus.work import MessageEnd

MOST_REASONS = 100
OTHER = "other"


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
