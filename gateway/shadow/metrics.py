"""Metrics of shadows, read at each scrape."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.shadow.copies import ShadowCopies
from gateway.shadow.live import LiveShadows
from gateway.shadow.writer import ShadowWriter
from policies.sequential.event_test import e_value
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
        running = GaugeMetricFamily("headrace_shadow_running", "Copies under way.", labels=("shadow",))
        held = GaugeMetricFamily("headrace_shadow_bytes", "Bytes of requests and answers that copies hold.")
        for name, shadow in self._shadows.by_name.items():
            for end in ENDS:
                copies.add_metric((name, end), shadow.copies[end])
            for kind in ("prompt", "completion"):
                tokens.add_metric((name, kind), shadow.tokens[kind])
            running.add_metric((name,), shadow.running)
        held.add_metric((), self._copies.budget.held)
        yield from (copies, tokens, running, held, *self._evidence())

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
