"""Counts the requests of a pool between two measurements."""

from typing import NamedTuple


class MeterCounts(NamedTuple):
    """See `PoolDemand`."""

    begun: int
    late: int
    missed: int


class PoolMeter:
    """The counts of one pool. `wait` is the objective for the time in the queue, in seconds."""

    __slots__ = ("begun", "late", "missed", "wait")

    def __init__(self) -> None:
        self.wait = 0.0
        self.begun = self.late = self.missed = 0

    def begin(self, waited: float) -> None:
        """Count a request that is sent to an endpoint."""
        self.begun += 1
        if waited > self.wait:
            self.late += 1

    def miss(self) -> None:
        """Count a request that is not sent because all places are taken."""
        self.missed += 1

    def take(self) -> MeterCounts:
        """The counts since the last call."""
        counts = MeterCounts(self.begun, self.late, self.missed)
        self.begun = self.late = self.missed = 0
        return counts
