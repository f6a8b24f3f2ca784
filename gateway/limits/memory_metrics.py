"""Metrics of the memory of requests, in bytes."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.limits.memory import Memory


class MemoryMetrics(Collector):
    """Reads the budgets at each scrape. The tenants are those of the configuration."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def collect(self) -> Iterator[Metric]:
        process = self._memory.process
        limit = GaugeMetricFamily("headrace_held_bytes_limit", "Bytes that requests may hold in this process.")
        limit.add_metric((), process.limit)
        most = GaugeMetricFamily("headrace_held_bytes_most", "The most that requests have held in this process.")
        most.add_metric((), process.most)
        held = GaugeMetricFamily("headrace_held_bytes", "Bytes that requests hold.", labels=("tenant",))
        refused = CounterMetricFamily(
            "headrace_held_bytes_refused", "Requests refused because the budget was full.", labels=("tenant",)
        )
        held.add_metric(("",), process.held - sum(budget.held for budget in self._memory.tenants.values()))
        refused.add_metric(("",), process.refused)
        for tenant, budget in self._memory.tenants.items():
            held.add_metric((tenant,), budget.held)
            refused.add_metric((tenant,), budget.refused)
        yield from (limit, most, held, refused)
