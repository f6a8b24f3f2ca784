"""Rollouts and experiments of a file, and the operations on their progress that differ."""

from collections.abc import Mapping
from random import Random
from typing import Any

import msgspec

from config.schema.config import Config
from config.schema.experiment import ExperimentConfig, FeedbackMetricConfig
from config.schema.rollout import RolloutConfig
from policies.experiments import decide as experiments
from policies.experiments.progress import ExperimentProgress
from policies.experiments.report import audited as audited_experiment
from policies.rollouts import decide as rollouts
from policies.rollouts.decide import Judgement
from policies.rollouts.progress import RolloutProgress, fingerprint
from policies.rollouts.report import audited as audited_rollout
from policies.routing.rules import comparisons_of
from policies.shadowing.planned import planned as shadows_planned

Progress = RolloutProgress | ExperimentProgress
Verb = rollouts.OperatorVerb | experiments.ExperimentVerb


class Planned(msgspec.Struct, frozen=True):
    """A rollout or an experiment of the file, the identity of its arms, and the metrics that clients report."""

    config: RolloutConfig | ExperimentConfig
    fingerprint: str
    metrics: Mapping[str, FeedbackMetricConfig] = {}
    shadow: str = ""
    """The identity of the comparison of answers before the first step."""

    def begun(self, stored: Progress | None) -> Progress:
        """The progress before the begin. `stored`: that of other arms."""
        if isinstance(self.config, RolloutConfig):
            if isinstance(stored, RolloutProgress):
                return stored.started_anew(self.fingerprint)
            return RolloutProgress(self.config.name, self.fingerprint)
        if isinstance(stored, ExperimentProgress):
            return stored.started_anew(self.fingerprint)
        return ExperimentProgress(self.config.name, self.fingerprint)

    def advanced(self, progress: Progress, seconds: float, rng: Random, shadow: Judgement = "undecided") -> Progress:
        """The progress after some seconds. `shadow` is the verdict about the answers of copies."""
        config = self.config
        if isinstance(config, RolloutConfig):
            assert isinstance(progress, RolloutProgress)
            return rollouts.advance(config, progress, seconds, shadow)
        assert isinstance(progress, ExperimentProgress)
        return experiments.advance(config, self.metrics[config.metric], progress, seconds, rng)

    def ordered(self, progress: Progress, verb: Verb) -> Progress:
        """The progress after an operator's order. Raises `OrderRefused`."""
        config = self.config
        if isinstance(config, RolloutConfig):
            assert isinstance(progress, RolloutProgress)
            if verb == "stop":
                raise rollouts.OrderRefused("a rollout is taken back: use `headrace rollout back`")
            return rollouts.ordered(config, progress, verb)
        assert isinstance(progress, ExperimentProgress)
        if verb == "back":
            raise rollouts.OrderRefused("an experiment is stopped: use `headrace experiment stop`")
        return experiments.ordered(config, progress, verb)

    def audited(self, progress: Progress) -> dict[str, Any]:
        """The facts of a decision, for the audit log."""
        config = self.config
        if isinstance(config, RolloutConfig):
            assert isinstance(progress, RolloutProgress)
            return audited_rollout(config, progress)
        assert isinstance(progress, ExperimentProgress)
        return audited_experiment(config, list(self.metrics.values()), progress)


def planned_of(config: Config) -> tuple[Planned, ...]:
    """Every rollout and every experiment of a file."""
    pools = {pool.name: pool for pool in config.pools}
    metrics = {metric.name: metric for metric in config.feedback}
    shadows = {plan.name: plan.identity for plan in shadows_planned(config)}
    own = (compared for _, compared in comparisons_of(config.models))
    return tuple(
        Planned(compared, fingerprint(compared, pools), metrics, shadows.get(compared.name, "")) for compared in own
    )


def shown(progress: Progress) -> tuple[object, ...]:
    """The parts of a progress whose change is an entry of the audit log."""
    if isinstance(progress, RolloutProgress):
        return progress.generation, progress.status, progress.reason, progress.step, progress.share
    return progress.generation, progress.status, progress.reason, progress.shares, progress.winner
