"""Metrics of recorded usage."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.features.journal.live import LiveJournal
from gateway.features.usage.writer import UsageWriter


class UsageLost(Collector):
    """What a process could not write to its journal."""

    def __init__(self, journal: LiveJournal) -> None:
        self._journal = journal

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "headrace_usage_lost", "Requests whose usage was not counted.", self._journal.uncounted
        )


class UsageMetrics(Collector):
    """The state of the writer of a host."""

    def __init__(self, writer: UsageWriter) -> None:
        self._writer = writer

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "headrace_usage_written_timestamp_seconds",
            "Unix time of the last successful write of usage; 0 before the first.",
            self._writer.written,
        )
