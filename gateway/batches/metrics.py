"""Metrics of batches."""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.batches.gate import Gate


class BatchMetrics(Collector):
    """The lines in flight, and those that may be."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def collect(self) -> Iterator[Metric]:
        running = GaugeMetricFamily("headrace_batch_lines_running", "Lines of batches in flight.", labels=["pools"])
        limit = GaugeMetricFamily(
            "headrace_batch_lines_limit", "Lines that the measured capacity allows at once.", labels=["pools"]
        )
        waiting = GaugeMetricFamily(
            "headrace_batch_lines_waiting", "Lines that wait for capacity that live requests leave.", labels=["pools"]
        )
        for lane in self._gate.lanes:
            pools = ",".join(sorted(lane.pools))
            running.add_metric([pools], lane.running)
            limit.add_metric([pools], lane.admission.limit)
            waiting.add_metric([pools], len(lane.waiting))
        yield from (running, limit, waiting)
