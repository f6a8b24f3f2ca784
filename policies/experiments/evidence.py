"""The evidence of an experiment: which arm is better, which one a guard stops, and whether arms have their shares."""

from math import log
from typing import NamedTuple

from config.schema.experiment import ExperimentConfig, FeedbackMetricConfig
from config.schema.rollout import BackConfig, EventConfig
from policies.experiments.progress import ExperimentProgress, MetricSums, pairs_of
from policies.sequential import proportions
from policies.sequential.effect import EffectSum
from policies.sequential.event_ratio import EventCount, log_rise
from policies.sequential.proportions import Assigned, log_mismatch


class GuardAlarm(NamedTuple):
    """The evidence that an arm has an event more often than the control. It is certain at `needed`."""

    condition: BackConfig
    arm: int
    log_e: float
    needed: float

    @property
    def is_certain(self) -> bool:
        return self.log_e >= self.needed


def guard_events(progress: ExperimentProgress, event: EventConfig, arm: int) -> list[EventCount]:
    """The events of the control and of an arm, in each stratum in which both have requests."""
    counts = []
    for stratum in progress.compared:
        control, share = stratum.shares[0], stratum.shares[arm]
        if control and share:
            events = stratum.events.get(event.key, [0] * len(stratum.shares))
            counts.append(EventCount(share / (control + share), events[0] + events[arm], events[arm]))
    return counts


def guard_alarms(config: ExperimentConfig, progress: ExperimentProgress) -> list[GuardAlarm]:
    """The evidence of each guard about each arm. They share alpha."""
    arms = len(config.arms) - 1
    needed = log(max(len(config.guards), 1) * arms / config.alpha)
    return [
        GuardAlarm(guard, arm, log_rise(guard_events(progress, guard, arm), guard.above), needed)
        for guard in config.guards
        for arm in range(1, arms + 1)
    ]


def log_better(metric: FeedbackMetricConfig, sums: MetricSums, arm: int, other: int) -> float:
    """The logarithm of the e-value against "the arm is no better than the other"."""
    pair = pair_of(sums, arm, other)
    return pair.log_above() if (metric.better == "higher") == (arm > other) else pair.log_below()


def pair_of(sums: MetricSums, arm: int, other: int) -> EffectSum:
    """The sums of two arms, the later one less the earlier one."""
    return sums.pairs[pairs_of(len(sums.counts)).index((min(arm, other), max(arm, other)))]


def needed_to_win(config: ExperimentConfig) -> float:
    """The logarithm of the e-value that an arm needs against each other arm.

    If all arms are equal, each is a false winner with a probability of at most alpha/arms: it exceeds a given other
    arm. If one is the best, a false winner exceeds it.
    """
    return log(len(config.arms) / config.alpha)


def winner_of(config: ExperimentConfig, metric: FeedbackMetricConfig, progress: ExperimentProgress) -> int | None:
    """The arm that is certainly better than every other one that no guard has stopped."""
    sums, needed = progress.metrics.get(config.metric), needed_to_win(config)
    remaining = [arm for arm in range(len(config.arms)) if arm not in progress.dropped]
    if len(remaining) == 1:
        return remaining[0]
    if sums is None:
        return None
    for arm in remaining:
        if all(log_better(metric, sums, arm, other) >= needed for other in remaining if other != arm):
            return arm
    return None


def log_assigned_mismatch(progress: ExperimentProgress) -> float:
    """The logarithm of the e-value against "each arm has its share of the subjects"."""
    strata = progress.strata[progress.subjects_from :]
    return log_mismatch([Assigned(s.shares, tuple(s.assigned)) for s in strata])


def log_reported_mismatch(progress: ExperimentProgress, metric: str) -> float:
    """The same of the subjects with a value: arms whose clients report more or less often are not comparable."""
    strata = progress.strata[progress.subjects_from :]
    return log_mismatch([Assigned(s.shares, tuple(s.values.get(metric, [0] * len(s.shares)))) for s in strata])


def mismatch(config: ExperimentConfig, progress: ExperimentProgress) -> str:
    """Why no verdict is worth reading; empty if nothing is wrong."""
    bound = -log(proportions.MISMATCH_ALPHA)
    if log_assigned_mismatch(progress) >= bound:
        return "sample ratio"
    return "feedback ratio" if log_reported_mismatch(progress, config.metric) >= bound else ""
