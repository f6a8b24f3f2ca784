"""An experiment as samples of metrics: each has the name of its family and the labels beside the experiment's name."""

from collections.abc import Iterator, Mapping

from config.schema.experiment import ExperimentConfig, FeedbackMetricConfig
from policies.experiments.evidence import guard_alarms, log_assigned_mismatch, log_better, log_reported_mismatch
from policies.experiments.progress import ExperimentProgress
from policies.sequential.event_ratio import e_value

STATUSES = ("running", "held", "decided", "over", "stopped")


def samples(
    config: ExperimentConfig, progress: ExperimentProgress, metrics: Mapping[str, FeedbackMetricConfig]
) -> Iterator[tuple[str, tuple[str, ...], float]]:
    """The family, the labels and the value of each sample. `metrics` are those of the file, by name."""
    labels = config.labels
    for arm, share in zip(labels, progress.shares or config.first_shares, strict=True):
        yield "share", (arm,), share
    for status in STATUSES:
        yield "status", (status,), progress.status == status
    yield "e_value", ("sample_ratio", "", ""), e_value(log_assigned_mismatch(progress))
    yield "e_value", ("feedback_ratio", config.metric, ""), e_value(log_reported_mismatch(progress, config.metric))
    for alarm in guard_alarms(config, progress):
        yield "e_value", ("guard", alarm.condition.key, labels[alarm.arm]), e_value(alarm.log_e)
    for name, sums in progress.metrics.items():
        if name not in metrics:
            continue
        for arm, count in zip(labels, sums.counts, strict=True):
            yield "values", (name, arm), count
        for number in range(1, len(labels)):
            yield "e_value", ("better", name, labels[number]), e_value(log_better(metrics[name], sums, number, 0))
