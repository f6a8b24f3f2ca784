"""Metrics of the export of traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from gateway.telemetry.traces.exporter import Exporter  # needs an extra


class TraceMetrics(Collector):
    """Traces by outcome, and the queue in front of the collector. Empty without a collector."""

    def __init__(self, exporter: Callable[[], Exporter | None]) -> None:
        self._exporter = exporter

    def collect(self) -> Iterator[Metric]:
        exporter = self._exporter()
        if exporter is None:
            return
        traces = CounterMetricFamily("headrace_traces", "Traces of requests, by outcome.", labels=("outcome",))
        traces.add_metric(["exported"], exporter.exported)
        traces.add_metric(["dropped"], exporter.dropped)
        yield traces
        yield CounterMetricFamily(
            "headrace_spans_rejected", "Spans that the collector rejected.", value=exporter.rejected
        )
        yield CounterMetricFamily(
            "headrace_runtime_spans_missed",
            "Attempts whose bundled runtime has not reported its spans.",
            value=exporter.runtimes.missed,
        )
        yield GaugeMetricFamily("headrace_traces_queued", "Traces that wait for the collector.", value=exporter.queued)
