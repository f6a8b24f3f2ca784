"""The number of messages that the broker may send ahead: the free places, and not a fixed prefetch.

The prefetch of a consumer cannot be changed. A larger number is a further consumer on the same channel; a smaller one
ends all consumers, and the next call begins with a new one. The messages that they have received stay with the channel.
"""

from math import inf

SURPLUS_FOR = 1.0
"""Seconds for which messages may be sent ahead without a free place."""
PARTS = 4
"""A further consumer has at least this part of `ahead`, so that there are few."""


class Consumer:
    """One consumer: `size` messages, of which `held` are not acknowledged."""

    __slots__ = ("held", "size", "tag")

    def __init__(self, tag: str, size: int) -> None:
        self.tag = tag
        self.size = size
        self.held = 0


class Credit:
    """The consumers of one channel. `ahead` is the largest number of free places."""

    def __init__(self, ahead: int) -> None:
        self._part = max(1, ahead // PARTS)
        self._most = 2 * ahead
        self.consumers: list[Consumer] = []
        self._surplus_since = inf

    @property
    def free(self) -> int:
        """Messages that the broker may send now."""
        return sum(consumer.size - consumer.held for consumer in self.consumers)

    def missing(self, most: int, buffered: int) -> int:
        """The size of a further consumer; 0 if none is needed."""
        lack = most - buffered - self.free
        if lack <= 0:
            return 0
        size = lack if not self.consumers else max(lack, self._part)
        return max(0, min(size, self._most - sum(consumer.size for consumer in self.consumers)))

    def is_surplus(self, most: int, buffered: int, now: float) -> bool:
        """Whether more than a part has been sent or may be sent without a free place, for a while."""
        surplus = self.free > 0 and self.free + buffered - most > (self._part if most else 0)
        self._surplus_since = min(self._surplus_since, now) if surplus else inf
        return now - self._surplus_since > SURPLUS_FOR
