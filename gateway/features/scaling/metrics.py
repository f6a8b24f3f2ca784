"""Metrics of the replicas of runtimes."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.features.scaling.pool_scale import PoolScale


class ReplicaMetrics(Collector):
    """Reads the replicas at each scrape."""

    def __init__(self, pools: Callable[[], Iterable[PoolScale]]) -> None:
        self._pools = pools

    def collect(self) -> Iterator[Metric]:
        running = GaugeMetricFamily("headrace_replicas", "Processes of a runtime.", labels=("pool", "state"))
        desired = GaugeMetricFamily("headrace_replicas_desired", "Replicas that are needed.", labels=("pool",))
        start = GaugeMetricFamily(
            "headrace_replica_start_seconds", "Longest of the last measured starts.", labels=("pool",)
        )
        for pool in self._pools():
            state = pool.describe()
            name = state["pool"]
            other = max(0, state["replicas"] - state["ready"] - state["starting"])
            for label, count in (("ready", state["ready"]), ("starting", state["starting"]), ("failing", other)):
                running.add_metric((name, label), count)
            desired.add_metric((name,), state["desired"])
            if state["start_seconds"] is not None:
                start.add_metric((name,), state["start_seconds"])
        yield from (running, desired, start)
