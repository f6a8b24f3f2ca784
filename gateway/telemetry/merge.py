"""Merges the metrics of several workers into the metrics of one gateway."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar, Sample

from gateway.telemetry import families

Way = Callable[[Iterable[float]], float]
_Key = tuple[str, tuple[tuple[str, str], ...]]
"""The name and the labels of a sample."""

GAUGES: Mapping[str, Way] = {
    "headrace_endpoint_healthy": min,
    "headrace_endpoint_breaker_closed": min,
    "headrace_endpoint_drained": max,
    "headrace_endpoint_signal_age_seconds": max,
    "headrace_batches_unfinished": max,
    "headrace_batch_unfinished_lines": max,
    "headrace_discovered_endpoints": max,
    "headrace_discovery_age_seconds": max,
    "headrace_jwks_age_seconds": max,
    "headrace_jwks_keys": min,
    "headrace_key_database_available": min,
    "headrace_keys_age_seconds": max,
    "headrace_redis_up": min,
    "headrace_bus_lag": max,
    "headrace_bus_available": min,
    "headrace_tenant_budget_remaining_ratio": min,
    "headrace_certificate_expiry_timestamp_seconds": min,
    "headrace_shadow_e_value": max,
    "headrace_shadow_verdict": max,
}
"""Gauges that are not amounts: the most critical value of all workers counts. Other gauges are summed."""
ONLY_GROW = ("counter", "histogram")


class SampleTally(Collector):
    """The counts of all workers, also of ended ones: a sum that falls would look like a restart."""

    def __init__(self) -> None:
        self._latest: dict[int, list[Metric]] = {}
        self._gone: list[Metric] = []
        self._own: list[Collector] = []
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def take(self, worker: int, encoded: bytes) -> None:
        """Replace a worker's metrics by its current ones, as `families.encode` returns them."""
        self._latest[worker] = families.decode(encoded)

    def end(self, worker: int) -> None:
        """Record the end of a worker: its counters remain, its gauges are dropped."""
        last = self._latest.pop(worker, [])
        self._gone = merged([self._gone, [family for family in last if family.type in ONLY_GROW]])

    def watch(self, collector: Collector) -> None:
        """Add metrics that are the supervisor's own."""
        self._own.append(collector)

    def collect(self) -> Iterator[Metric]:
        own = (collector.collect() for collector in self._own)
        yield from merged([self._gone, *self._latest.values(), *own])


def merged(views: Iterable[Iterable[Metric]]) -> list[Metric]:
    """Merge families of the same name, and in them samples of the same labels."""
    merged: dict[str, Metric] = {}
    samples: dict[str, dict[_Key, list[Sample]]] = {}
    for family in (family for view in views for family in view):
        merged.setdefault(family.name, family)
        same = samples.setdefault(family.name, {})
        for sample in family.samples:
            same.setdefault((sample.name, tuple(sample.labels.items())), []).append(sample)
    return [_family(family, samples[name]) for name, family in merged.items()]


def _family(like: Metric, samples: dict[_Key, list[Sample]]) -> Metric:
    way = GAUGES.get(like.name, sum)
    made = Metric(like.name, like.documentation, like.type)
    made.samples = [
        Sample(name, dict(labels), way([sample.value for sample in same]), None, _newest(same))
        for (name, labels), same in samples.items()
    ]
    return made


def _newest(samples: Iterable[Sample]) -> Exemplar | None:
    exemplars = [sample.exemplar for sample in samples if sample.exemplar is not None]
    return max(exemplars, key=lambda exemplar: exemplar.timestamp or 0, default=None)
