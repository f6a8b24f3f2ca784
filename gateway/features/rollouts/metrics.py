"""Metrics of rollouts, read at each scrape from the last decision."""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from config.schema.rollout import RolloutConfig
from gateway.features.rollouts.decider import Decider
from policies.rollouts.evidence import alarms, event_counts, log_ratio_mismatch, proofs
from policies.rollouts.progress import RolloutProgress
from policies.sequential.event_ratio import e_value

STATUSES = ("running", "held", "back", "done")


class RolloutMetrics(Collector):
    """The rollouts of a gateway. Labels come from the configuration."""

    def __init__(self, decider: Decider) -> None:
        self._decider = decider

    def collect(self) -> Iterator[Metric]:
        share = GaugeMetricFamily("headrace_rollout_weight", "Share of the new arm.", labels=("rollout",))
        status = GaugeMetricFamily("headrace_rollout_status", "1 for the status.", labels=("rollout", "status"))
        evidence = GaugeMetricFamily(
            "headrace_rollout_e_value",
            "Evidence that the new arm is worse (back_if), better (on_if), or has a wrong share (sample_ratio).",
            labels=("rollout", "test", "metric"),
        )
        events = GaugeMetricFamily("headrace_rollout_events", "Counted events.", labels=("rollout", "metric", "arm"))
        available = GaugeMetricFamily("headrace_rollout_database_available", "1 while decisions can be stored.")
        available.add_metric((), self._decider.available)
        for plan in self._decider.planned:
            config, progress = plan.config, self._decider.progress.get(plan.config.name)
            if not isinstance(config, RolloutConfig) or not isinstance(progress, RolloutProgress):
                continue
            name = config.name
            share.add_metric((name,), progress.share)
            for each in STATUSES:
                status.add_metric((name, each), progress.status == each)
            evidence.add_metric((name, "sample_ratio", ""), e_value(log_ratio_mismatch(progress)))
            for alarm in alarms(config, progress):
                evidence.add_metric((name, "back_if", alarm.condition.key), e_value(alarm.log_e))
            for proof in proofs(config, progress):
                if proof.log_e is not None:
                    evidence.add_metric((name, "on_if", proof.condition.key), e_value(proof.log_e))
            for event in config.events():
                counts = event_counts(progress.strata, event)
                to, total = sum(count.canary for count in counts), sum(count.total for count in counts)
                events.add_metric((name, event.key, "from"), total - to)
                events.add_metric((name, event.key, "to"), to)
        yield from (share, status, evidence, events, available)
