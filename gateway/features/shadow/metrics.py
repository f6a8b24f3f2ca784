"""Metrics of shadows, read at each scrape."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from config.schema.money import PICOS
from gateway.features.shadow.copies import ShadowCopies
from gateway.features.shadow.live import LiveShadows
from gateway.features.shadow.writer import ShadowWriter
from policies.sequential.event_ratio import e_value
from policies.shadowing.live import REASONS

ENDS = ("equal", "differing", *REASONS)


class ShadowMetrics(Collector):
    """The copies of a process. Labels come from the configuration."""

    def __init__(self, shadows: LiveShadows, copies: ShadowCopies, writer: ShadowWriter) -> None:
        self._shadows = shadows
        self._copies = copies
        self._writer = writer

    def collect(self) -> Iterator[Metric]:
        copies = CounterMetricFamily(
            "headrace_shadow_copies", "Drawn copies by their end: compared, or dropped.", labels=("shadow", "end")
        )
        tokens = CounterMetricFamily(
            "headrace_shadow_tokens", "Tokens of copies, on the operator's bill.", labels=("shadow", "kind")
        )
        cost = CounterMetricFamily(
            "headrace_shadow_cost", "Cost of copies, on the operator's bill.", labels=("shadow", "currency")
        )
        running = GaugeMetricFamily("headrace_shadow_running", "Copies under way.", labels=("shadow",))
        held = GaugeMetricFamily("headrace_shadow_bytes", "Bytes of requests and answers that copies hold.")
        for name, shadow in self._shadows.by_name.items():
            for end in ENDS:
                copies.add_metric((name, end), shadow.copies[end])
            for kind in ("prompt", "completion"):
                tokens.add_metric((name, kind), shadow.tokens[kind])
            running.add_metric((name,), shadow.running)
            for currency, picos in shadow.cost.items():
                cost.add_metric((name, currency), picos / PICOS)
        held.add_metric((), self._copies.budget.held)
        yield from (copies, tokens, cost, running, held, *self._seconds(), *self._evidence())

    def _seconds(self) -> Iterator[Metric]:
        labels = ("shadow", "answer")
        first_byte = HistogramMetricFamily(
            "headrace_shadow_first_byte_seconds",
            "Time to the first byte of compared answers: the client's (primary) and the shadow's.",
            labels=labels,
        )
        total = HistogramMetricFamily(
            "headrace_shadow_duration_seconds", "Time to the end of compared answers.", labels=labels
        )
        for key, histograms in self._copies.seconds.of(self._shadows.by_name):
            first_byte.add_metric(key, histograms.first_byte.buckets(), histograms.first_byte.sum)
            total.add_metric(key, histograms.total.buckets(), histograms.total.sum)
        yield from (first_byte, total)

    def _evidence(self) -> Iterator[Metric]:
        evidence = GaugeMetricFamily(
            "headrace_shadow_e_value", "Evidence that the answers of the shadow differ.", labels=("shadow",)
        )
        verdicts = GaugeMetricFamily("headrace_shadow_verdict", "1 for the verdict.", labels=("shadow", "verdict"))
        for name, each in self._writer.evidence.items():
            evidence.add_metric((name,), e_value(each.log_e))
            for judgement in ("differs", "agrees"):
                verdicts.add_metric((name, judgement), each.judgement == judgement)
        yield from (evidence, verdicts)
