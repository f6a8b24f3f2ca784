"""Metrics of experiments, read at each scrape from the last decision."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from config.schema.experiment import ExperimentConfig
from gateway.features.experiments.inbox import FeedbackInbox
from gateway.features.rollouts.decider import Decider
from policies.experiments.evidence import guard_alarms, log_assigned_mismatch, log_better, log_reported_mismatch
from policies.experiments.progress import ExperimentProgress
from policies.sequential.event_ratio import e_value

STATUSES = ("running", "held", "decided", "over", "stopped")


class ExperimentMetrics(Collector):
    """The experiments of a gateway. Labels come from the configuration."""

    def __init__(self, decider: Decider) -> None:
        self._decider = decider

    def collect(self) -> Iterator[Metric]:
        share = GaugeMetricFamily("headrace_experiment_share", "Share of an arm.", labels=("experiment", "arm"))
        status = GaugeMetricFamily("headrace_experiment_status", "1 for the status.", labels=("experiment", "status"))
        values = GaugeMetricFamily(
            "headrace_experiment_values", "Counted values of clients.", labels=("experiment", "metric", "arm")
        )
        evidence = GaugeMetricFamily(
            "headrace_experiment_e_value",
            "Evidence that an arm is better than the control (better), has an event more often (guard), or that arms "
            "have wrong shares of the requests or of the values (sample_ratio, feedback_ratio).",
            labels=("experiment", "test", "metric", "arm"),
        )
        for plan in self._decider.planned:
            config, progress = plan.config, self._decider.progress.get(plan.config.name)
            if not isinstance(config, ExperimentConfig) or not isinstance(progress, ExperimentProgress):
                continue
            name, labels = config.name, config.labels
            for arm, own in zip(labels, progress.shares or config.first_shares, strict=True):
                share.add_metric((name, arm), own)
            for each in STATUSES:
                status.add_metric((name, each), progress.status == each)
            assigned, reported = log_assigned_mismatch(progress), log_reported_mismatch(progress, config.metric)
            evidence.add_metric((name, "sample_ratio", "", ""), e_value(assigned))
            evidence.add_metric((name, "feedback_ratio", config.metric, ""), e_value(reported))
            for alarm in guard_alarms(config, progress):
                evidence.add_metric((name, "guard", alarm.condition.key, labels[alarm.arm]), e_value(alarm.log_e))
            for metric, sums in progress.metrics.items():
                if metric not in plan.metrics:
                    continue
                for arm, count in zip(labels, sums.counts, strict=True):
                    values.add_metric((name, metric, arm), count)
                for number in range(1, len(labels)):
                    better = e_value(log_better(plan.metrics[metric], sums, number, 0))
                    evidence.add_metric((name, "better", metric, labels[number]), better)
        yield from (share, status, values, evidence)


class FeedbackMetrics(Collector):
    """The values that clients have reported to one process."""

    def __init__(self, inbox: FeedbackInbox) -> None:
        self._inbox = inbox

    def collect(self) -> Iterator[Metric]:
        stored = CounterMetricFamily("headrace_feedback_values", "Values of clients that are stored.")
        stored.add_metric((), self._inbox.stored)
        yield stored
