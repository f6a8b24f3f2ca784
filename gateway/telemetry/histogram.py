"""Counts of values by range."""

import time
from bisect import bisect_left
from itertools import accumulate
from typing import NamedTuple

from prometheus_client.samples import Exemplar as SampleExemplar

TRACE = "trace_id"
Bucket = tuple[str, float] | tuple[str, float, SampleExemplar]


class Exemplar(NamedTuple):
    """A request that was counted, with the trace that shows it."""

    trace_id: str
    value: float
    time: float
    """Unix seconds."""


def observe(*values: "tuple[Histogram, float]", trace_id: str = "") -> None:
    """Count the values of one request, each in its histogram. With `trace_id`, they are exemplars."""
    for histogram, value in values:
        place = bisect_left(histogram.bounds, value)
        histogram.counts[place] += 1
        histogram.sum += value
        if trace_id:
            histogram.exemplars[place] = Exemplar(trace_id, value, time.time())


class Histogram:
    """Counts by upper bound, their sum, and the newest exemplar of each range."""

    __slots__ = ("bounds", "counts", "exemplars", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self.exemplars: dict[int, Exemplar] = {}

    def observe(self, value: float, trace_id: str = "") -> None:
        """Count a value. With `trace_id`, the value is an exemplar."""
        observe((self, value), trace_id=trace_id)

    def buckets(self) -> list[Bucket]:
        """Cumulative counts by upper bound, in Prometheus' form."""
        names = [*map(str, self.bounds), "+Inf"]
        made: list[Bucket] = list(zip(names, accumulate(self.counts), strict=True))
        for place, (trace_id, value, at) in self.exemplars.items():
            made[place] = (*made[place][:2], SampleExemplar({TRACE: trace_id}, value, at))
        return made
