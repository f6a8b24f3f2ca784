"""Metrics of discovered endpoints, and of the age of reported load."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.traffic.fleet.fleet import Fleet

if TYPE_CHECKING:
    from gateway.traffic.discovery.discoverer import Discoverer


class DiscoveryMetrics(Collector):
    """Reads the fleet at each scrape."""

    def __init__(self, fleet: Fleet, clock: Callable[[], float]) -> None:
        self._fleet = fleet
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        yield from _sources(self._fleet.discoverers)
        signals = GaugeMetricFamily(
            "headrace_endpoint_signal_age_seconds",
            "Seconds since an endpoint last reported its load; of pools that balance by load.",
            labels=("pool", "endpoint"),
        )
        drained = GaugeMetricFamily(
            "headrace_endpoint_drained", "1 while an operator drains the endpoint.", labels=("pool", "endpoint")
        )
        now = self._clock()
        for member in self._fleet:
            key, age = (member.pool, member.endpoint.id), member.endpoint.signal.age(now)
            drained.add_metric(key, member.drained)
            if member.scraper is not None:
                signals.add_metric(key, float("inf") if age is None else age)
        yield from (signals, drained)


def _sources(discoverers: "Mapping[str, Discoverer]") -> Iterator[Metric]:
    endpoints = GaugeMetricFamily(
        "headrace_discovered_endpoints", "Endpoints that a pool's source reported.", labels=("pool",)
    )
    age = GaugeMetricFamily(
        "headrace_discovery_age_seconds",
        "Seconds since the last report of a pool's source; +Inf before the first.",
        labels=("pool",),
    )
    failures = CounterMetricFamily(
        "headrace_discovery_failures",
        "Queries and reports of a pool's source that could not be used.",
        labels=("pool",),
    )
    for pool, discoverer in discoverers.items():
        failures.add_metric((pool,), discoverer.failures)
        endpoints.add_metric((pool,), len(discoverer.targets))
        age.add_metric((pool,), discoverer.age)
    yield from (endpoints, age, failures)
