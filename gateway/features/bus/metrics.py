"""Metrics of bindings, and of workers behind brokers."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from adapters.upstreams.bus.adapter import BusAdapter
from gateway.features.bus.plane import BusPlane
from gateway.features.bus.work import OUTCOMES
from gateway.traffic.endpoint import Endpoint


class BusMetrics(Collector):
    """The lag, the messages in work and the counts of each binding."""

    def __init__(self, plane: BusPlane) -> None:
        self._consumers = plane.consumers

    def collect(self) -> Iterator[Metric]:
        yield from self._gauges()
        yield from self._counters()

    def _gauges(self) -> Iterator[Metric]:
        lag = GaugeMetricFamily(
            "headrace_bus_lag", "Messages that the group has not settled, as the broker reports.", labels=["binding"]
        )
        in_work = GaugeMetricFamily("headrace_bus_in_work", "Messages received and not settled.", labels=["binding"])
        available = GaugeMetricFamily(
            "headrace_bus_available", "Whether the broker and the table of ids answer.", labels=["binding"]
        )
        for consumer in self._consumers:
            name = [consumer.binding.name]
            if consumer.lag is not None:
                lag.add_metric(name, consumer.lag)
            in_work.add_metric(name, consumer.held)
            available.add_metric(name, consumer.available)
        yield from (lag, in_work, available)

    def _counters(self) -> Iterator[Metric]:
        messages = CounterMetricFamily("headrace_bus_messages_total", "Ended messages.", labels=["binding", "outcome"])
        dead = CounterMetricFamily("headrace_bus_dead_letters_total", "Dead letters.", labels=["binding", "reason"])
        again = CounterMetricFamily(
            "headrace_bus_redeliveries_total", "Messages that the broker delivered again.", labels=["binding"]
        )
        retries = CounterMetricFamily("headrace_bus_retries_total", "Further attempts of messages.", labels=["binding"])
        for consumer in self._consumers:
            name, counts = consumer.binding.name, consumer.counts
            for outcome in OUTCOMES:
                messages.add_metric([name, outcome], counts.outcomes[outcome])
            for reason, count in counts.dead.items():
                dead.add_metric([name, reason], count)
            again.add_metric([name], counts.redeliveries)
            retries.add_metric([name], consumer.runner.retries)
        yield from (messages, dead, again, retries)


class LateAnswers(Collector):
    """Answers of workers behind brokers that came too late. `endpoints` are those of the fleet."""

    def __init__(self, endpoints: Callable[[], Iterable[tuple[str, Endpoint]]]) -> None:
        self._endpoints = endpoints

    def collect(self) -> Iterator[Metric]:
        late = CounterMetricFamily(
            "headrace_bus_late_answers_total",
            "Answers of workers behind a broker to requests that had ended.",
            labels=["pool"],
        )
        counts: dict[str, int] = {}
        for pool, endpoint in self._endpoints():
            if isinstance(endpoint.adapter, BusAdapter):
                counts[pool] = counts.get(pool, 0) + endpoint.adapter.late
        for pool, count in counts.items():
            late.add_metric([pool], count)
        yield late
