"""An operator's view of the shadows of a file."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gateway.features.shadow.store import Key, ShadowProgress, ShadowStore
from policies.sequential.event_ratio import e_value
from policies.sequential.quantiles import quantile, quantile_interval
from policies.shadowing.pairs import PairTally, verdict
from policies.shadowing.planned import ShadowPlan

QUANTILES = (0.5, 0.95)
_MOST = 1e300
"""Larger e-values are shown as this one: JSON has no infinity."""


def shadow_views(plans: Sequence[ShadowPlan], stored: Mapping[Key, ShadowProgress]) -> list[dict[str, Any]]:
    """One object for each shadow, in the order of the file."""
    return [_view(plan, stored.get((plan.name, plan.identity)) or ShadowProgress()) for plan in plans]


def _view(plan: ShadowPlan, progress: ShadowProgress) -> dict[str, Any]:
    config, tally = plan.config, progress.tally
    evidence = verdict(config, tally)
    low, high = evidence.excess
    return {
        "name": plan.name,
        "model": plan.model,
        "to": plan.to.label,
        "share": config.share,
        "noise": config.noise,
        "verdict": evidence.judgement,
        "since": progress.judged or None,
        "e_value": min(e_value(evidence.log_e), _MOST),
        "needed": e_value(evidence.needed),
        "excess": [round(max(low, -1.0), 6), round(high, 6)],
        "compared": tally.compared + tally.repeated,
        "differing": tally.differing + tally.shadow_only + tally.both,
        "repeated": tally.repeated,
        "discordant": {"shadow": tally.shadow_only, "repeat": tally.repeat_only},
        "both_differ": tally.both,
        "times": _times(tally, config.alpha),
        "fields": dict(sorted(tally.fields.items(), key=lambda item: -item[1])),
    }


def _times(tally: PairTally, alpha: float) -> dict[str, Any]:
    """Quantiles of the times of the compared answers in seconds, with their intervals."""
    shown: dict[str, Any] = {}
    for label, counted in (("first_byte", tally.first_byte), ("total", tally.total)):
        for arm, bins in zip(("primary", "shadow"), counted, strict=False):
            shown.setdefault(label, {})[arm] = {
                f"p{p * 100:g}": {
                    "seconds": quantile(bins, p),
                    "interval": [min(end, _MOST) for end in quantile_interval(bins, p, alpha)],
                }
                for p in QUANTILES
            }
    return shown


def sampled_view(view: dict[str, Any], plan: ShadowPlan, store: ShadowStore) -> dict[str, Any]:
    """The view of a shadow with its samples, latest first. Blocks."""
    return {**view, "samples": msgspec.to_builtins(store.samples((plan.name, plan.identity)))}
