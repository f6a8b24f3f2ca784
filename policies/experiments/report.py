"""An experiment for operators: the admin API, the command line, the audit log, and points of its time series."""

from collections.abc import Sequence
from typing import Any

from config.schema.experiment import ExperimentConfig, FeedbackMetricConfig
from policies.experiments.evidence import (
    guard_alarms,
    guard_events,
    log_assigned_mismatch,
    log_better,
    log_reported_mismatch,
    needed_to_win,
    pair_of,
)
from policies.experiments.progress import FIRST_COMPARED, ExperimentProgress, MetricSums
from policies.rollouts.report import finite
from policies.sequential.event_ratio import e_value, ratio_interval
from policies.sequential.quantiles import merged, quantile, quantile_interval

SERIES_SECONDS = 60.0
SERIES_GROWTH = 1.01
"""The next point of the time series comes after a minute, or after a hundredth of the time up to now."""
_P95 = 0.95


def described(
    config: ExperimentConfig, metrics: Sequence[FeedbackMetricConfig], progress: ExperimentProgress
) -> dict[str, Any]:
    """All of an experiment: its arms, the effects of each metric, its guards and its sample ratios."""
    return {
        "name": progress.name,
        "status": progress.status,
        "reason": progress.reason,
        "winner": None if progress.winner is None else config.labels[progress.winner],
        "metric": config.metric,
        "decide": config.decide,
        "elapsed_seconds": round(progress.elapsed, 1),
        "baseline": progress.stratum in range(FIRST_COMPARED),
        "needed": finite(e_value(needed_to_win(config))),
        "sample_ratio": {"e_value": finite(e_value(log_assigned_mismatch(progress)))},
        "feedback_ratio": {"e_value": finite(e_value(log_reported_mismatch(progress, config.metric)))},
        "arms": [_arm(config, progress, arm) for arm in range(len(config.arms))],
        "metrics": {metric.name: _metric(config, metric, progress) for metric in metrics},
        "guards": _guards(config, progress),
    }


def audited(
    config: ExperimentConfig, metrics: Sequence[FeedbackMetricConfig], progress: ExperimentProgress
) -> dict[str, Any]:
    """The facts of a decision, for the audit log."""
    view = described(config, metrics, progress)
    names = ("status", "reason", "winner", "sample_ratio", "feedback_ratio")
    arms = [{"name": arm["name"], "share": arm["share"], "assigned": arm["assigned"]} for arm in view["arms"]]
    return {**{name: view[name] for name in names}, "arms": arms, "evidence": view["metrics"].get(config.metric, {})}


def is_due(progress: ExperimentProgress) -> bool:
    """Whether the time series needs another point. Their number grows with the logarithm of the time."""
    last = progress.pointed_at
    return last == 0 or progress.elapsed >= max(last + SERIES_SECONDS, last * SERIES_GROWTH)


def point(config: ExperimentConfig, metric: FeedbackMetricConfig, progress: ExperimentProgress) -> dict[str, Any]:
    """One point of the time series: of each arm its share, samples, mean, effect, interval and e-value."""
    shown = _metric(config, metric, progress)
    arms = [
        {"share": round(share, 6), "assigned": assigned, **values}
        for share, assigned, values in zip(progress.shares, _assigned(config, progress), shown["arms"], strict=False)
    ]
    return {
        "elapsed_seconds": round(progress.elapsed, 1),
        "sample_ratio": finite(e_value(log_assigned_mismatch(progress))),
        "feedback_ratio": finite(e_value(log_reported_mismatch(progress, config.metric))),
        "arms": arms,
    }


def _arm(config: ExperimentConfig, progress: ExperimentProgress, arm: int) -> dict[str, Any]:
    shares = progress.shares or config.first_shares
    bins = merged(stratum.first_byte[arm] for stratum in progress.compared if stratum.first_byte)
    shown: dict[str, Any] = {
        "name": config.labels[arm],
        "share": round(shares[arm], 6),
        "assigned": _assigned(config, progress)[arm],
        "ended": sum(stratum.ended[arm] for stratum in progress.compared),
        "stopped_by": progress.dropped.get(arm),
    }
    if bins:
        interval = [finite(end) for end in quantile_interval(bins, _P95, config.alpha)]
        shown["first_byte_p95"] = {"seconds": finite(quantile(bins, _P95)), "interval": interval}
    return shown


def _assigned(config: ExperimentConfig, progress: ExperimentProgress) -> list[int]:
    return [sum(stratum.assigned[arm] for stratum in progress.compared) for arm in range(len(config.arms))]


def _metric(config: ExperimentConfig, metric: FeedbackMetricConfig, progress: ExperimentProgress) -> dict[str, Any]:
    """The values of each arm, in the metric's own units, and the effect of each arm against the control."""
    sums = progress.metrics.get(metric.name)
    arms = []
    for arm in range(len(config.arms)):
        count = 0 if sums is None else sums.counts[arm]
        total = 0.0 if sums is None else sums.totals[arm]
        mean = metric.least + metric.span * total / count if count else None
        shown: dict[str, Any] = {"samples": count, "mean": None if mean is None else round(mean, 6)}
        if arm and sums is not None:
            shown |= _effect(config, metric, sums, arm)
        arms.append(shown)
    return {
        "better": metric.better,
        "arms": arms,
        "predicted": 0 if sums is None else sums.predicted,
        "theta": None if progress.covariate is None else round(progress.covariate[0], 4),
    }


def _effect(config: ExperimentConfig, metric: FeedbackMetricConfig, sums: MetricSums, arm: int) -> dict[str, Any]:
    pair = pair_of(sums, 0, arm)
    low, high = pair.interval(config.alpha / (len(config.arms) - 1))
    return {
        "effect": round(metric.span * pair.estimate, 6),
        "interval": [round(metric.span * low, 6), round(metric.span * high, 6)],
        "e_value": {
            "better": finite(e_value(log_better(metric, sums, arm, 0))),
            "worse": finite(e_value(log_better(metric, sums, 0, arm))),
        },
    }


def _guards(config: ExperimentConfig, progress: ExperimentProgress) -> list[dict[str, Any]]:
    shown = []
    for alarm in guard_alarms(config, progress):
        counts = guard_events(progress, alarm.condition, alarm.arm)
        own, total = sum(count.canary for count in counts), sum(count.total for count in counts)
        low, high = ratio_interval(counts, config.alpha)
        shown.append(
            {
                "event": alarm.condition.key,
                "arm": config.labels[alarm.arm],
                "above": alarm.condition.above,
                "slower_than": progress.bounds.get(alarm.condition.key),
                "events": {"control": total - own, "arm": own},
                "ratio": [round(low, 4), finite(round(high, 4))],
                "e_value": finite(e_value(alarm.log_e)),
                "needed": finite(e_value(alarm.needed)),
            }
        )
    return shown
