"""Counts the values that clients report."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from config.schema.experiment import FeedbackMetricConfig
from config.schema.rollout import EventConfig
from policies.experiments.progress import FIRST_COMPARED, ExperimentProgress, MetricSums, pairs_of
from policies.sequential.effect import EffectSum


class ReportedValue(NamedTuple):
    """The first value of a metric for a subject, or for a request that is its own subject."""

    metric: str
    unit: int
    arm: int
    stratum: int
    value: float
    """In [0, 1]."""


def is_bad(event: EventConfig, metric: FeedbackMetricConfig, value: float) -> bool:
    """Whether a value is the event of a condition."""
    bound = 0.5 if event.worse_than is None else (event.worse_than - metric.least) / metric.span
    return value < bound if metric.better == "higher" else value > bound


def bad_values(
    events: Sequence[EventConfig], metrics: Mapping[str, FeedbackMetricConfig], value: ReportedValue
) -> list[str]:
    """The keys of the events that a value is."""
    metric = metrics.get(value.metric)
    if metric is None:
        return []
    return [event.key for event in events if event.of == value.metric and is_bad(event, metric, value.value)]


def forget_rescaled(progress: ExperimentProgress, metrics: Mapping[str, FeedbackMetricConfig]) -> None:
    """Remove the sums of metrics that have another scale now."""
    for name in [name for name, sums in progress.metrics.items() if name in metrics]:
        sums, scale = progress.metrics[name], metrics[name].scale
        if sums.scale != scale:
            del progress.metrics[name]
            for stratum in progress.strata:
                stratum.values.pop(name, None)


def count_value(progress: ExperimentProgress, value: ReportedValue, before: float | None, scale: str = "") -> None:
    """Add a value to an experiment's sums. `before`: the subject's value in the baseline; None without one.

    A value of the baseline is no value of the comparison.
    """
    if not FIRST_COMPARED <= value.stratum < len(progress.strata):
        return
    stratum = progress.strata[value.stratum]
    arms, arm = len(stratum.shares), value.arm
    sums = progress.metrics.get(value.metric)
    if sums is None:
        pairs = [EffectSum() for _ in pairs_of(arms)]
        sums = progress.metrics[value.metric] = MetricSums([0] * arms, [0.0] * arms, pairs, scale=scale)
    prediction = (0.5 + sum(sums.totals)) / (1 + sum(sums.counts))
    if before is not None and progress.covariate is not None:
        theta, mean = progress.covariate
        prediction = min(max(prediction + theta * (before - mean), 0.0), 1.0)
        sums.predicted += 1
    for pair, (first, second) in zip(sums.pairs, pairs_of(arms), strict=True):
        both = stratum.shares[first] + stratum.shares[second]
        if arm in (first, second) and stratum.shares[first] and stratum.shares[second]:
            pair.add(arm == second, value.value - prediction, stratum.shares[second] / both)
    sums.counts[arm] += 1
    sums.totals[arm] += value.value
    counts = stratum.values.setdefault(value.metric, [0] * arms)
    counts[arm] += 1
