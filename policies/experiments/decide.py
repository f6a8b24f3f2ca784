"""The next status of an experiment. Pure: the counts, the seconds that have passed and chance are arguments."""

from collections.abc import Sequence
from random import Random
from typing import Literal

from msgspec.structs import replace

from config.schema.experiment import ExperimentConfig, FeedbackMetricConfig
from policies.experiments.evidence import guard_alarms, mismatch, winner_of
from policies.experiments.progress import FIRST_COMPARED, ExperimentProgress, fresh_stratum
from policies.rollouts.decide import PAUSED, OrderRefused
from policies.rollouts.evidence import FEWEST_TIMES, frozen_bounds, quantile_events
from policies.rollouts.tally import MEASURING
from policies.sequential.quantiles import Bins, merged
from policies.sequential.thompson import Rewards, thompson_shares

ExperimentVerb = Literal["pause", "on", "stop"]
ENDED = ("decided", "over", "stopped")
GRID = 100
"""Shares of Thompson sampling are hundredths: equal ones share a stratum."""
MOST_STRATA = 1000
"""Strata of one experiment; with as many, the shares stay."""


def advance(
    config: ExperimentConfig,
    metric: FeedbackMetricConfig,
    progress: ExperimentProgress,
    seconds: float,
    rng: Random,
) -> ExperimentProgress:
    """The experiment after some seconds in which nothing but its counts has changed.

    A guard stops its arm at any time, also while the experiment is paused. A wrong sample ratio suspends every verdict.
    """
    progress = replace(progress, elapsed=progress.elapsed + seconds)
    if progress.status in ENDED:
        return progress
    if progress.elapsed < config.warmup + config.baseline or not _is_measured(config, progress):
        return _before(config, progress)
    if not progress.bounds:
        progress = replace(progress, bounds=frozen_bounds(quantile_events(config.guards), _measured(progress)))
    progress = _shared(config, progress)
    if reason := mismatch(config, progress):
        return replace(progress, status="held", reason=reason)
    certain = {alarm.arm: alarm.condition.key for alarm in guard_alarms(config, progress) if alarm.is_certain}
    if new := {arm: key for arm, key in certain.items() if arm not in progress.dropped}:
        progress = replace(progress, dropped={**progress.dropped, **new})
        progress = _with_shares(progress, _remaining(config.shares, progress.dropped))
    if progress.status == "held":
        return progress
    winner = winner_of(config, metric, progress)
    if winner is not None:
        return _ended(config, replace(progress, status="decided", winner=winner))
    if config.longest is not None and progress.elapsed >= config.longest:
        return _ended(config, replace(progress, status="over", reason="no winner"))
    if config.decide == "thompson" and progress.elapsed - progress.shared_at >= config.every:
        return _resampled(config, metric, progress, rng)
    return progress


def ordered(config: ExperimentConfig, progress: ExperimentProgress, verb: ExperimentVerb) -> ExperimentProgress:
    """The experiment after an operator's order. Raises `OrderRefused`."""
    if verb == "stop":
        if progress.status == "stopped":
            raise OrderRefused("the experiment is stopped already")
        return replace(progress, status="stopped", reason="operator", shares=config.first_shares, stratum=None)
    if verb == "pause":
        if progress.status in ENDED:
            raise OrderRefused(f"the experiment is {progress.status}, so there is nothing to pause")
        return replace(progress, status="held", reason=PAUSED)
    if progress.status == "stopped":
        return progress.started_anew(progress.fingerprint)
    if progress.status in ENDED:
        raise OrderRefused(f"the experiment is {progress.status}: start one with another name")
    if progress.reason != PAUSED and progress.status == "held":
        # The operator accepts the deviation: the strata up to now stay out of the test.
        anew = _with_shares(progress, progress.shares, reuse=False)
        return replace(anew, status="running", reason="", subjects_from=len(anew.strata) - 1)
    return replace(progress, status="running", reason="")


def _before(config: ExperimentConfig, progress: ExperimentProgress) -> ExperimentProgress:
    """The warm-up, then the two halves of the baseline: the control has all requests in the baseline."""
    first = config.first_shares
    strata = progress.strata or [fresh_stratum(first) for _ in range(FIRST_COMPARED)]
    since = progress.elapsed - config.warmup
    if config.baseline == 0 or since < 0:
        shares = first if config.baseline else config.shares
        measuring = MEASURING if quantile_events(config.guards) else None
        return replace(progress, shares=shares, strata=strata, stratum=measuring)
    return replace(progress, shares=first, strata=strata, stratum=int(since >= config.baseline / 2))


def _measured(progress: ExperimentProgress) -> Bins:
    """The times of the control before the comparison."""
    baseline = (s.first_byte[0] for s in progress.strata[:FIRST_COMPARED] if s.first_byte)
    return merged((progress.measured, *baseline))


def _is_measured(config: ExperimentConfig, progress: ExperimentProgress) -> bool:
    """Whether every bound that is a quantile has enough times."""
    if progress.bounds or not quantile_events(config.guards):
        return True
    return sum(_measured(progress).values()) >= FEWEST_TIMES


def _shared(config: ExperimentConfig, progress: ExperimentProgress) -> ExperimentProgress:
    """The experiment with the shares of the file, at its begin and after an edit of the weights."""
    if progress.stratum is None or progress.stratum < FIRST_COMPARED:
        begun = _before(config, replace(progress, stratum=None))
        return _with_shares(begun, _remaining(config.shares, progress.dropped))
    if config.decide == "sequential":
        return _with_shares(progress, _remaining(config.shares, progress.dropped))
    return progress


def _with_shares(progress: ExperimentProgress, shares: Sequence[float], *, reuse: bool = True) -> ExperimentProgress:
    """The experiment with other shares, under the stratum that has them."""
    shares = tuple(shares)
    if reuse and shares == progress.shares and progress.stratum is not None and progress.stratum >= FIRST_COMPARED:
        return progress
    same = [i for i, s in enumerate(progress.strata) if s.shares == shares and i >= progress.subjects_from]
    if reuse and same:
        return replace(progress, shares=shares, stratum=same[0], shared_at=progress.elapsed)
    if len(progress.strata) >= MOST_STRATA:
        return progress
    strata = [*progress.strata, fresh_stratum(shares)]
    return replace(progress, shares=shares, strata=strata, stratum=len(strata) - 1, shared_at=progress.elapsed)


def _remaining(shares: Sequence[float], dropped: dict[int, str]) -> tuple[float, ...]:
    """The shares without those of stopped arms."""
    total = sum(share for arm, share in enumerate(shares) if arm not in dropped)
    return tuple(0.0 if arm in dropped else share / total for arm, share in enumerate(shares))


def _resampled(
    config: ExperimentConfig, metric: FeedbackMetricConfig, progress: ExperimentProgress, rng: Random
) -> ExperimentProgress:
    """The experiment with the shares that Thompson sampling gives, in hundredths and no less than the floor."""
    progress, sums = replace(progress, shared_at=progress.elapsed), progress.metrics.get(config.metric)
    if sums is None:
        return progress
    remaining = [arm for arm in range(len(config.arms)) if arm not in progress.dropped]
    rewards = [
        Rewards(total if metric.better == "higher" else count - total, count)
        for arm, (count, total) in enumerate(zip(sums.counts, sums.totals, strict=True))
        if arm in remaining
    ]
    sampled = _in_hundredths(thompson_shares(rewards, config.floor, rng), config.floor)
    by_arm = dict(zip(remaining, sampled, strict=True))
    return _with_shares(progress, [by_arm.get(arm, 0.0) for arm in range(len(config.arms))])


def _in_hundredths(shares: Sequence[float], floor: float) -> list[float]:
    """Rounded shares: the largest one has the rest."""
    rounded = [max(round(share * GRID) / GRID, floor) for share in shares]
    largest = max(range(len(shares)), key=lambda i: shares[i])
    rounded[largest] = 1 - sum(share for i, share in enumerate(rounded) if i != largest)
    return rounded


def _ended(config: ExperimentConfig, progress: ExperimentProgress) -> ExperimentProgress:
    """The experiment at its end, with the shares that `then` gives."""
    if config.then == "hold":
        return progress
    chosen = progress.winner or 0
    return replace(progress, shares=tuple(float(arm == chosen) for arm in range(len(config.arms))), stratum=None)
