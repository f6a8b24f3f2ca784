"""The evidence in the counts of a rollout: alarms, proofs, and the ratio of the arms' subjects.

Bounds of times that are quantiles of an arm are measured before the events that they decide, and fixed from then on.
"""

from collections.abc import Iterable, Sequence
from math import log
from typing import NamedTuple

from config.schema.rollout import BackConfig, EventConfig, ProofConfig, RolloutConfig
from policies.rollouts.progress import RolloutProgress, Stratum
from policies.sequential import proportions
from policies.sequential.event_ratio import EventCount, log_fall, log_rise
from policies.sequential.proportions import Assigned, Proportion, log_mismatch, rate_interval
from policies.sequential.quantiles import Bins, quantile

FEWEST_TIMES = 200
"""Times that a quantile needs."""


def quantile_events(events: Iterable[EventConfig]) -> Sequence[EventConfig]:
    """The events whose bound is a quantile, such as p95."""
    return [event for event in events if isinstance(event.slower_than, str)]


def frozen_bounds(events: Sequence[EventConfig], times: Bins) -> dict[str, float]:
    """The bound of each event in seconds, by its key."""
    return {event.key: quantile(times, float(str(event.slower_than)[1:]) / 100) for event in events}


class Alarm(NamedTuple):
    """The evidence for one condition of ``back_if``. It is certain when `log_e` reaches `needed`."""

    condition: BackConfig
    log_e: float
    needed: float

    @property
    def is_certain(self) -> bool:
        return self.log_e >= self.needed


class Proof(NamedTuple):
    """The evidence for one condition of ``on_if``."""

    condition: ProofConfig
    log_e: float | None
    """Estimate of the ratio; None if the condition bounds the rate only."""
    most: float | None
    """The upper end of the interval of the rate of `to`; None if the condition bounds the ratio only."""
    is_proven: bool


def event_counts(strata: Sequence[Stratum], event: EventConfig) -> list[EventCount]:
    """The events of each stratum."""
    pairs = [(stratum.share, stratum.events.get(event.key, [0, 0])) for stratum in strata]
    return [EventCount(share, source + to, to) for share, (source, to) in pairs]


def alarms(config: RolloutConfig, progress: RolloutProgress) -> list[Alarm]:
    """The evidence of each condition of ``back_if``. The conditions share alpha."""
    needed = log(len(config.back_if) / config.alpha) if config.back_if else 0.0
    return [
        Alarm(condition, log_rise(event_counts(progress.strata, condition), condition.above), needed)
        for condition in config.back_if
    ]


def proofs(config: RolloutConfig, progress: RolloutProgress) -> list[Proof]:
    """The evidence of each condition of ``on_if``. All must be proven, so none needs a share of alpha."""
    return [_proof(config, progress, condition) for condition in config.on_if]


def _proof(config: RolloutConfig, progress: RolloutProgress, condition: ProofConfig) -> Proof:
    log_e = most = None
    is_proven = False
    if condition.below is not None:
        log_e = log_fall(event_counts(progress.strata, condition), condition.below)
        is_proven = log_e >= -log(config.alpha)
    if condition.at_most is not None:
        events = sum(stratum.events.get(condition.key, [0, 0])[1] for stratum in progress.strata)
        trials = sum(stratum.ended[1] for stratum in progress.strata)
        # Narrow where the bound is: a prior of that mean.
        prior = (0.5, 0.5 / condition.at_most)
        _, most = rate_interval(Proportion(min(events, trials), trials), config.alpha, *prior)
        is_proven = is_proven or most <= condition.at_most
    return Proof(condition, log_e, most, is_proven)


def log_ratio_mismatch(progress: RolloutProgress) -> float:
    """The logarithm of the e-value against "both arms have their shares of the subjects"."""
    strata = progress.strata[progress.subjects_from :]
    return log_mismatch([Assigned((1 - s.share, s.share), (s.assigned[0], s.assigned[1])) for s in strata])


def has_mismatch(progress: RolloutProgress) -> bool:
    """Whether the arms certainly do not have their shares of the subjects."""
    return log_ratio_mismatch(progress) >= -log(proportions.MISMATCH_ALPHA)
