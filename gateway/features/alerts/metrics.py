"""Metrics of the deliveries of a host."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.features.alerts.writer import AlertWriter


class AlertMetrics(Collector):
    """The outcomes of attempts, and the alerts that wait."""

    def __init__(self, writer: AlertWriter) -> None:
        self._writer = writer

    def collect(self) -> Iterator[Metric]:
        outcomes = CounterMetricFamily(
            "headrace_budget_alerts", "Attempts to deliver alerts of soft budgets, by outcome.", labels=("outcome",)
        )
        for outcome in ("delivered", "retried", "dropped"):
            outcomes.add_metric((outcome,), self._writer.outcomes[outcome])
        yield outcomes
        yield GaugeMetricFamily(
            "headrace_budget_alerts_waiting",
            "Alerts of soft budgets that no webhook has accepted.",
            self._writer.waiting,
        )
