"""Durations counted by size, for metrics."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

LATENCY_BOUNDS = (
    0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
"""For waits and intervals of an LLM engine, in seconds."""


class Histogram:
    """Counts of durations in buckets. Adding is two additions. One thread adds; any thread may read.

    `bounds` are the upper ends of the buckets in seconds; one more bucket has no end.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum += seconds

    def buckets(self) -> list[tuple[str, int]]:
        """The cumulative count up to each bound, as Prometheus has it."""
        return list(zip((*map(str, self.bounds), "+Inf"), accumulate(self.counts), strict=True))
