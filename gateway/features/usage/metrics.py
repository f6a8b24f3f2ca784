"""Metrics of recorded usage."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.features.usage.live import LiveUsage
from gateway.features.usage.writer import UsageWriter


class UsageLost(Collector):
    """What the counter of a process could not count."""

    def __init__(self, usage: LiveUsage) -> None:
        self._usage = usage

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily("headrace_usage_lost", "Requests whose usage was not counted.", self._usage.lost)


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
