"""The next status of a rollout. Pure: the counts and the seconds that have passed are arguments."""

from typing import Literal

from msgspec.structs import replace

from config.schema.rollout import RolloutConfig
from policies.rollouts.evidence import FEWEST_TIMES, alarms, frozen_bounds, has_mismatch, proofs, quantile_events
from policies.rollouts.progress import KEEP_ENDED, SHADOW, RolloutProgress, Stratum

Judgement = Literal["differs", "agrees", "undecided"]
"""Of the copies that a shadow compares."""

OperatorVerb = Literal["pause", "on", "back"]
PAUSED, UNPROVEN, SAMPLE_RATIO, OPERATOR = "paused", "unproven", "sample ratio", "operator"


class OrderRefused(Exception):
    """An operator's order that the rollout cannot follow. The message has the reason and an alternative."""


def advance(
    config: RolloutConfig, progress: RolloutProgress, seconds: float, shadow: Judgement = "undecided"
) -> RolloutProgress:
    """The rollout after some seconds in which nothing but its counts has changed. `shadow` is the verdict about the
    answers of copies.

    An alarm takes it back at any time, also while it is paused. A wrong sample ratio suspends every verdict.
    """
    progress = replace(progress, elapsed=progress.elapsed + seconds)
    if progress.status == "done":
        return replace(progress, reason=KEEP_ENDED if progress.elapsed > config.keep else "")
    if progress.status == "back":
        return progress
    if needs_shadow(config, progress):
        return _shadowed(progress, shadow)
    progress = _as_configured(config, progress)
    if not progress.counting:
        progress = _warmed(config, progress)
    if has_mismatch(progress):
        return replace(progress, status="held", reason=SAMPLE_RATIO)
    alarm = next((alarm for alarm in alarms(config, progress) if alarm.is_certain), None)
    if alarm is not None:
        return _back(progress, alarm.condition.key)
    if progress.reason in (PAUSED, SAMPLE_RATIO) or not _is_over(config, progress):
        return progress
    if config.unproven == "go_on" or all(proof.is_proven for proof in proofs(config, progress)):
        return _next_step(config, progress)
    if config.unproven == "back":
        return _back(progress, UNPROVEN)
    return replace(progress, status="held", reason=UNPROVEN)


def needs_shadow(config: RolloutConfig, progress: RolloutProgress) -> bool:
    """Whether the answers of copies must agree before the first step, which has not begun."""
    begun = progress.shadowed or progress.share or progress.strata
    return config.shadow_first is not None and progress.status in ("running", "held") and not begun


def _shadowed(progress: RolloutProgress, shadow: Judgement) -> RolloutProgress:
    if shadow == "differs":
        return _back(progress, SHADOW)
    if progress.reason == PAUSED:
        return progress
    if shadow == "agrees":
        return replace(progress, status="running", reason="", shadowed=True, elapsed=0.0)
    return replace(progress, status="running", reason=SHADOW)


def _warmed(config: RolloutConfig, progress: RolloutProgress) -> RolloutProgress:
    """The rollout in its warm-up, or with a new stratum after it.

    Quantiles of `from` are measured in the warm-up, which lasts until there are enough times: a bound must not depend
    on the events that it decides.
    """
    quantiles = quantile_events(config.events()) if progress.share < 1 else ()
    if progress.elapsed < config.warmup or (quantiles and sum(progress.measured.values()) < FEWEST_TIMES):
        return replace(progress, measuring=bool(quantiles))
    fresh = Stratum(progress.share, progress.step, bounds=frozen_bounds(quantiles, progress.measured))
    return replace(progress, counting=True, measuring=False, measured={}, strata=[*progress.strata, fresh])


def ordered(config: RolloutConfig, progress: RolloutProgress, verb: OperatorVerb) -> RolloutProgress:
    """The rollout after an operator's order. Raises `OrderRefused`."""
    status, reason = progress.status, progress.reason
    if verb == "back":
        if status == "back":
            raise OrderRefused("the rollout has already gone back")
        if status == "done" and progress.elapsed > config.keep:
            raise OrderRefused(
                "`keep` has passed, so `from` may not be able to serve: start a rollout with another name"
            )
        return _back(progress, OPERATOR)
    if status == "done":
        raise OrderRefused("the rollout is done: `to` has all requests, and only `back` is possible")
    if verb == "pause":
        if status == "back":
            raise OrderRefused("the rollout has gone back and cannot be paused")
        return replace(progress, status="held", reason=PAUSED)
    if status == "back":
        return progress.started_anew(progress.fingerprint)
    if reason == SAMPLE_RATIO:
        running = replace(_silent(progress), status="running", reason="", elapsed=0.0)
        return replace(running, subjects_from=len(progress.strata))
    if reason == PAUSED:
        return replace(progress, status="running", reason="")
    if needs_shadow(config, progress):
        return replace(progress, reason="", shadowed=True, elapsed=0.0)
    return _next_step(config, _as_configured(config, progress))  # the file may have fewer steps since the last decision


def _as_configured(config: RolloutConfig, progress: RolloutProgress) -> RolloutProgress:
    """The rollout with the share that the file has for its step: a first step, or a changed file, is a new share."""
    step = min(progress.step, len(config.steps) - 1)
    share = config.steps[step].weight
    if (step, share) == (progress.step, progress.share):
        return progress
    return replace(_silent(progress), step=step, share=share, elapsed=0.0)


def _is_over(config: RolloutConfig, progress: RolloutProgress) -> bool:
    """Whether the step has lasted its time and has had its requests: an idle arm never passes."""
    assigned = sum(stratum.assigned[1] for stratum in progress.strata if stratum.step == progress.step)
    least = config.steps[progress.step].least
    return progress.counting and progress.elapsed >= least and assigned >= config.requests


def _next_step(config: RolloutConfig, progress: RolloutProgress) -> RolloutProgress:
    step, running = progress.step + 1, replace(_silent(progress), reason="", elapsed=0.0)
    if step == len(config.steps):
        return replace(running, status="done", share=1.0)
    return replace(running, status="running", step=step, share=config.steps[step].weight)


def _back(progress: RolloutProgress, reason: str) -> RolloutProgress:
    return replace(_silent(progress), status="back", reason=reason, share=0.0, elapsed=0.0)


def _silent(progress: RolloutProgress) -> RolloutProgress:
    """The rollout while nothing counts."""
    return replace(progress, counting=False, measuring=False, measured={})
