"""Rates and quantiles between two samples."""

from collections import defaultdict
from collections.abc import Callable, Iterator

from gateway.admin.top.source import GatewaySample

FAILURES = frozenset({"backend", "transport", "deadline", "capacity"})


class Rates:
    """What happened between two samples. A counter that fell began anew."""

    def __init__(self, before: GatewaySample, after: GatewaySample) -> None:
        self._before, self._after = before, after
        self._seconds = max(after.at - before.at, 1e-6)

    def by(
        self, name: str, *labels: str, where: Callable[[dict[str, str]], bool] = lambda _: True
    ) -> dict[tuple[str, ...], float]:
        """The growth of a counter a second, by the values of labels."""
        sums: defaultdict[tuple[str, ...], float] = defaultdict(float)
        for series, growth in self._growths(name):
            if where(series):
                sums[tuple(series.get(label, "") for label in labels)] += growth / self._seconds
        return dict(sums)

    def failures(self, *labels: str) -> dict[tuple[str, ...], float]:
        """Failures of the service a second."""
        return self.by(
            "headrace_requests_total",
            *labels,
            where=lambda series: series.get("error", "") in FAILURES and series.get("status") != "429",
        )

    def quantile(self, share: float, name: str, label: str) -> dict[str, float]:
        """A quantile of a histogram, by a label: the upper bound of its range."""
        counts: defaultdict[str, defaultdict[float, float]] = defaultdict(lambda: defaultdict(float))
        for series, growth in self._growths(f"{name}_bucket"):
            counts[series.get(label, "")][float(series["le"])] += growth
        return {
            value: next(bound for bound in sorted(ranges) if ranges[bound] >= share * max(ranges.values()))
            for value, ranges in counts.items()
            if any(ranges.values())
        }

    def _growths(self, name: str) -> Iterator[tuple[dict[str, str], float]]:
        before = self._before.metrics.get(name, {})
        for labels, value in self._after.metrics.get(name, {}).items():
            growth = value - before.get(labels, 0.0)
            yield dict(labels), growth if growth >= 0 else value
