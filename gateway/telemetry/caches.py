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
            ("headrace_cache_bytes", "Memory of the answers that are kept.", size),
            ("headrace_cache_answers", "Answers that are kept.", answers),
            ("headrace_cache_calls", "Calls on their way whose answer may be shared.", calls),
        ):
            gauge = GaugeMetricFamily(name, help_, labels=("model",))
            for model, count in counts.items():
                gauge.add_metric((model,), count)
            yield gauge
