"""An operator's view of the shadows of a file."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gateway.shadow.store import Key, ShadowProgress, ShadowStore
from policies.sequential.event_test import e_value
from policies.shadowing.planned import ShadowPlan
from policies.shadowing.verdict import verdict

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
        "fields": dict(sorted(tally.fields.items(), key=lambda item: -item[1])),
    }


def sampled_view(view: dict[str, Any], plan: ShadowPlan, store: ShadowStore) -> dict[str, Any]:
    """The view of a shadow with its samples, latest first. Blocks."""
    return {**view, "samples": msgspec.to_builtins(store.samples((plan.name, plan.identity)))}
