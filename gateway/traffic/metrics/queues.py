"""Metrics of the queues of pools."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.traffic.queue import PRIORITIES, PoolQueue


class QueueMetrics(Collector):
    """Reads the queues at each scrape. Labels are bounded: three priorities, and a fixed list of outcomes."""

    def __init__(self, queues: Callable[[], Iterable[PoolQueue]]) -> None:
        self._queues = queues

    def collect(self) -> Iterator[Metric]:
        depth = GaugeMetricFamily("headrace_queue_depth", "Waiting requests.", labels=("pool", "priority"))
        ends = CounterMetricFamily(
            "headrace_queue_ended",
            "Requests that met a full pool, by the end of their wait.",
            labels=("pool", "priority", "end"),
        )
        wait = HistogramMetricFamily(
            "headrace_queue_wait_seconds", "Wait of the requests that were admitted, in seconds.", labels=("pool",)
        )
        for queue in self._queues():
            for priority, waiting in zip(PRIORITIES, queue.line.depths(), strict=True):
                depth.add_metric((queue.name, priority), waiting)
            for (priority, end), count in queue.ends.items():
                ends.add_metric((queue.name, priority, end), count)
            wait.add_metric((queue.name,), queue.waits.buckets(), queue.waits.sum)
        yield from (depth, ends, wait)
