"""Metrics of the response caches, read at each scrape."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.traffic.cache import Shelf


class CacheGauges(Collector):
    """Gauges by model. Each route of a model has a shelf."""

    def __init__(self, shelves: Callable[[], Iterable[tuple[str, Shelf]]]) -> None:
        self._shelves = shelves

    def collect(self) -> Iterator[Metric]:
        size, answers, calls = Counter[str](), Counter[str](), Counter[str]()
        for model, shelf in self._shelves():
            size[model] += shelf.store.size
            answers[model] += len(shelf.store)
            calls[model] += len(shelf.flights)
        for name, help_, counts in (
            ("headrace_cache_bytes", "Bytes of the stored answers.", size),
            ("headrace_cache_answers", "Stored answers.", answers),
            ("headrace_cache_calls", "Running calls whose answer other requests may share.", calls),
        ):
            gauge = GaugeMetricFamily(name, help_, labels=("model",))
            for model, count in counts.items():
                gauge.add_metric((model,), count)
            yield gauge
