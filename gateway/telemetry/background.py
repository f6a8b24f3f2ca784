"""Metrics of the work behind the requests: tasks that failed, and items that a database has refused."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from adapters.lasting import failures
from gateway.state.refusals import refused


class BackgroundMetrics(Collector):
    """The counts of this process."""

    def collect(self) -> Iterator[Metric]:
        failed = CounterMetricFamily(
            "headrace_background_failures", "Unexpected ends of background tasks, which begin again.", labels=("task",)
        )
        for task, count in list(failures.items()):
            failed.add_metric((task,), count)
        writes = CounterMetricFamily(
            "headrace_writes_refused", "Items that a database can never store.", labels=("loop",)
        )
        for loop, count in list(refused.items()):
            writes.add_metric((loop,), count)
        yield from (failed, writes)
