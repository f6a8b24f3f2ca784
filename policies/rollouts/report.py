"""A rollout for operators: the admin API, the command line, the audit log, metrics, and its time series."""

from typing import Any, NamedTuple

from config.schema.rollout import EventConfig, RolloutConfig
from policies.rollouts.evidence import alarms, event_counts, log_ratio_mismatch, proofs
from policies.rollouts.progress import RolloutProgress, Stratum
from policies.sequential.event_ratio import e_value, ratio_interval
from policies.sequential.proportions import Proportion, difference_interval
from policies.sequential.quantiles import log_quantile_difference, merged, quantile, quantile_interval

_MOST = 1e300
"""JSON has no infinity."""
QUANTILES = (0.5, 0.95)


def described(config: RolloutConfig, progress: RolloutProgress) -> dict[str, Any]:
    """All of a rollout: its steps, its counts, and the evidence for each of its conditions."""
    return {
        "name": progress.name,
        "status": progress.status,
        "reason": progress.reason,
        "from": config.source.label,
        "to": config.to.label,
        "step": min(progress.step, len(config.steps) - 1),  # the file may have fewer steps since the last decision
        "steps": [{"weight": step.weight, "for_seconds": step.least} for step in config.steps],
        "weight": progress.share,
        "elapsed_seconds": round(progress.elapsed, 1),
        "counting": progress.counting,
        "back_for_seconds": round(max(config.keep - progress.elapsed, 0.0), 1) if progress.status == "done" else None,
        "requests": _pair([stratum.ended for stratum in progress.strata]),
        "assigned": _pair([stratum.assigned for stratum in progress.strata]),
        "sample_ratio": {"e_value": finite(e_value(log_ratio_mismatch(progress)))},
        "back_if": [
            {
                **_event(config, progress, alarm.condition),
                "above": alarm.condition.above,
                "e_value": finite(e_value(alarm.log_e)),
                "needed": finite(e_value(alarm.needed)),
            }
            for alarm in alarms(config, progress)
        ],
        "on_if": _proofs(config, progress),
        "first_byte": _times(config, progress),
    }


def audited(config: RolloutConfig, progress: RolloutProgress) -> dict[str, Any]:
    """The facts of a decision, for the audit log: e-values, counts and intervals."""
    conditions = [
        {
            "event": alarm.condition.key,
            "e": finite(e_value(alarm.log_e)),
            **_event(config, progress, alarm.condition)["events"],
            "ratio": list(_ratio(config, progress, alarm.condition)),
        }
        for alarm in alarms(config, progress)
    ]
    return {
        "status": progress.status,
        "reason": progress.reason,
        "step": progress.step,
        "weight": progress.share,
        "requests": _pair([stratum.ended for stratum in progress.strata]),
        "evidence": conditions,
    }


def _proofs(config: RolloutConfig, progress: RolloutProgress) -> list[dict[str, Any]]:
    return [
        {
            **_event(config, progress, proof.condition),
            "below": proof.condition.below,
            "at_most": proof.condition.at_most,
            "e_value": None if proof.log_e is None else finite(e_value(proof.log_e)),
            "rate_at_most": proof.most,
            "proven": proof.is_proven,
        }
        for proof in proofs(config, progress)
    ]


def _event(config: RolloutConfig, progress: RolloutProgress, event: EventConfig) -> dict[str, Any]:
    """The counts of an event, the interval of the ratio, and of the difference of the rates if requests are units."""
    counts = event_counts(progress.strata, event)
    to, total = sum(count.canary for count in counts), sum(count.total for count in counts)
    shown: dict[str, Any] = {
        "event": event.key,
        "events": {"from": total - to, "to": to},
        "ratio": list(_ratio(config, progress, event)),
    }
    bound = next((s.bounds[event.key] for s in reversed(progress.strata) if event.key in s.bounds), None)
    if bound is not None:
        shown["slower_than"] = round(bound, 6)
    if config.sticky == "request":
        rates = [_rate(progress, event, arm) for arm in (0, 1)]
        shown["difference"] = [round(end, 6) for end in difference_interval(rates[0], rates[1], config.alpha)]
    return shown


def _rate(progress: RolloutProgress, event: EventConfig, arm: int) -> Proportion:
    """The rate of an arm in this step: over steps of other shares, a drift of both arms would be a difference."""
    strata = _of_step(progress)
    events = sum(stratum.events.get(event.key, [0, 0])[arm] for stratum in strata)
    ended = sum(stratum.ended[arm] for stratum in strata)
    return Proportion(min(events, ended), ended)


def _of_step(progress: RolloutProgress) -> list[Stratum]:
    return [stratum for stratum in progress.strata if stratum.step == progress.step]


def _ratio(config: RolloutConfig, progress: RolloutProgress, event: EventConfig) -> tuple[float, float]:
    low, high = ratio_interval(event_counts(progress.strata, event), config.alpha)
    return round(low, 4), finite(round(high, 4))


def _times(config: RolloutConfig, progress: RolloutProgress) -> dict[str, Any]:
    """Quantiles of the time to the first byte in this step, in seconds, with their intervals, and the evidence that
    the arms' quantiles differ."""
    shown: dict[str, Any] = {}
    arms = [merged(stratum.first_byte[arm] for stratum in _of_step(progress)) for arm in (0, 1)]
    for bins, label in zip(arms, ("from", "to"), strict=True):
        if bins:
            shown[label] = {
                f"p{p * 100:g}": {
                    "seconds": finite(quantile(bins, p)),
                    "interval": [finite(end) for end in quantile_interval(bins, p, config.alpha)],
                }
                for p in QUANTILES
            }
    if all(arms):
        shown["differ"] = {
            f"p{p * 100:g}": {"e_value": finite(e_value(log_quantile_difference(arms[0], arms[1], p)))}
            for p in QUANTILES
        }
    return shown


def _pair(pairs: list[list[int]]) -> dict[str, int]:
    return {"from": sum(pair[0] for pair in pairs), "to": sum(pair[1] for pair in pairs)}


def finite(value: float) -> float:
    """The value, or the greatest one that reports have."""
    return min(value, _MOST)


LEAST_SECONDS = 30.0
GROWTH = 0.002
"""The next point comes after this part of the time since the first point, so their number stays below 10,000."""
CHANGE_SECONDS = 1.0


class PointTimes(NamedTuple):
    """The times of the first and the last point of a rollout, in Unix seconds, and the weight of the last one."""

    first: float
    last: float
    weight: float

    def is_due(self, now: float, weight: float) -> bool:
        """Whether the series needs another point."""
        if weight != self.weight:
            return now >= self.last + CHANGE_SECONDS
        return now >= self.last + max(LEAST_SECONDS, (now - self.first) * GROWTH)


def rollout_point(config: RolloutConfig, progress: RolloutProgress) -> dict[str, Any]:
    """One point: the weight, the step and the status; of each condition the e-value and the interval of the ratio."""
    view = described(config, progress)
    return {
        "weight": view["weight"],
        "step": view["step"],
        "status": view["status"],
        "requests": view["requests"],
        "conditions": [
            {"kind": kind, "event": each["event"], "e_value": each["e_value"], "ratio": each["ratio"]}
            for kind in ("back_if", "on_if")
            for each in view[kind]
        ],
    }
