"""Metrics of payload events."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.features.payloads.plane import PayloadPlane


class PayloadMetrics(Collector):
    """Reads the counts of all senders at each scrape."""

    def __init__(self, plane: PayloadPlane) -> None:
        self._plane = plane

    def collect(self) -> Iterator[Metric]:
        sent = CounterMetricFamily("headrace_payload_events", "Events that were stored.", labels=("model", "kind"))
        lost = CounterMetricFamily("headrace_payload_events_lost", "Events that were lost.", labels=("model", "reason"))
        for name, sender in self._plane.senders.items():
            for kind in ("request", "response"):
                sent.add_metric((name, kind), sender.sent[kind])
            for reason in ("queue", "content", "receiver"):
                lost.add_metric((name, reason), sender.lost[reason])
        yield from (sent, lost)
