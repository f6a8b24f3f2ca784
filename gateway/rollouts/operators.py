"""An operator's view of the rollouts of a file, and of those that only the database still has."""

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.rollouts.store import Planned
from policies.rollouts.progress import RolloutProgress
from policies.rollouts.report import described


def views(planned: Sequence[Planned], stored: Mapping[str, RolloutProgress]) -> list[dict[str, Any]]:
    """One object for each rollout, in the order of the file, then those without a place in the file."""
    shown = []
    for plan in planned:
        progress = stored.get(plan.config.name)
        if progress is None or progress.fingerprint != plan.fingerprint:
            progress = RolloutProgress(plan.config.name, plan.fingerprint)
            shown.append({**described(plan.config, progress), "status": "not begun"})
        else:
            shown.append(described(plan.config, progress))
    names = {plan.config.name for plan in planned}
    shown += [
        {"name": name, "status": progress.status, "reason": "not in the file", "weight": progress.share}
        for name, progress in stored.items()
        if name not in names
    ]
    return shown
