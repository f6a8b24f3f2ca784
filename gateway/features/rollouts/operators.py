"""An operator's view of the rollouts or experiments of a file, and of those that only the database still has."""

from collections.abc import Mapping, Sequence
from typing import Any

from config.schema.rollout import RolloutConfig
from gateway.features.rollouts.planned import Planned, Progress
from policies.experiments.progress import ExperimentProgress
from policies.experiments.report import described as described_experiment
from policies.rollouts.progress import RolloutProgress
from policies.rollouts.report import described as described_rollout


def views(planned: Sequence[Planned], stored: Mapping[str, Progress], kind: str = "rollout") -> list[dict[str, Any]]:
    """One object for each rollout or experiment, in the order of the file, then those without a place in the file."""
    own = [plan for plan in planned if plan.config.kind == kind]
    shown = [_view(plan, stored.get(plan.config.name)) for plan in own]
    names = {plan.config.name for plan in own}
    expected = RolloutProgress if kind == "rollout" else ExperimentProgress
    for name, progress in stored.items():
        if name not in names and isinstance(progress, expected):
            view: dict[str, Any] = {"name": name, "status": progress.status, "reason": "not in the file"}
            shown.append({**view, "weight": progress.share} if isinstance(progress, RolloutProgress) else view)
    return shown


def _view(plan: Planned, progress: Progress | None) -> dict[str, Any]:
    config = plan.config
    begun = progress is not None and progress.fingerprint == plan.fingerprint
    progress = progress if begun else plan.begun(None)
    if isinstance(config, RolloutConfig):
        assert isinstance(progress, RolloutProgress)
        view = described_rollout(config, progress)
    else:
        assert isinstance(progress, ExperimentProgress)
        view = described_experiment(config, list(plan.metrics.values()), progress)
    return view if begun else {**view, "status": "not begun"}
