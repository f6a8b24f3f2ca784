"""Merges the metrics of several workers into the metrics of one gateway."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

Way = Callable[[Iterable[float]], float]

GAUGES: Mapping[str, Way] = {
    "headrace_endpoint_healthy": min,
    "headrace_endpoint_breaker_closed": min,
    "headrace_endpoint_drained": max,
    "headrace_endpoint_signal_age_seconds": max,
    "headrace_discovered_endpoints": max,
    "headrace_discovery_age_seconds": max,
    "headrace_jwks_age_seconds": max,
    "headrace_jwks_keys": min,
    "headrace_key_database_available": min,
    "headrace_redis_up": min,
}
"""Gauges that are not amounts: the most critical value of all workers counts. Other gauges are summed."""
ONLY_GROW = ("counter", "histogram")


class SampleTally(Collector):
    """The counts of all workers, also of ended ones: a sum that falls would look like a restart."""

    def __init__(self) -> None:
        self._latest: dict[int, list[Metric]] = {}
        self._gone: list[Metric] = []
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def take(self, worker: int, exposition: bytes) -> None:
        """Replace a worker's metrics by its current ones."""
        self._latest[worker] = list(text_string_to_metric_families(exposition.decode()))

    def end(self, worker: int) -> None:
        """Record the end of a worker: its counters remain, its gauges are dropped."""
        last = self._latest.pop(worker, [])
        self._gone = merged([self._gone, [family for family in last if family.type in ONLY_GROW]])

    def watch(self, collector: Collector) -> None:
        """Add metrics that are the supervisor's own."""
        self._registry.register(collector)

    def collect(self) -> Iterator[Metric]:
        yield from merged([self._gone, *self._latest.values()])

    def exposition(self) -> bytes:
        """The Prometheus text format."""
        return generate_latest(self._registry)


def merged(views: Iterable[Iterable[Metric]]) -> list[Metric]:
    """Merge families of the same name, and in them samples of the same labels."""
    families: dict[str, Metric] = {}
    values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], list[float]]] = {}
    for family in (family for view in views for family in view):
        families.setdefault(family.name, family)
        samples = values.setdefault(family.name, {})
        for sample in family.samples:
            samples.setdefault((sample.name, tuple(sample.labels.items())), []).append(sample.value)
    return [_family(family, values[name]) for name, family in families.items()]


def _family(like: Metric, values: dict[tuple[str, tuple[tuple[str, str], ...]], list[float]]) -> Metric:
    way = GAUGES.get(like.name, sum)
    made = Metric(like.name, like.documentation, like.type)
    made.samples = [Sample(name, dict(labels), way(numbers)) for (name, labels), numbers in values.items()]
    return made
