"""The pools that must be able to serve for `back`: those of the old arm, until `keep` has passed."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from config.schema.config import ClientModelConfig, Config
from config.schema.rollout import RolloutArmConfig, RolloutConfig
from policies.rollouts.progress import RolloutProgress
from policies.routing.rules import comparisons_of


class WarmTarget(NamedTuple):
    """A pool of an old arm, with the name and the version of the model that its servers receive."""

    pool: str
    model: str
    version: str

    @property
    def label(self) -> str:
        """The name of the model, with its version if one is named."""
        return f"{self.model} version {self.version}" if self.version else self.model


def warm_seconds(config: RolloutConfig, progress: RolloutProgress) -> float:
    """Seconds for which the old arm must still be able to serve."""
    if progress.status == "done":
        return max(config.keep - progress.elapsed, 0.0)
    return 0.0 if progress.status == "back" else config.keep


def warm_targets(config: Config, names: Mapping[str, object]) -> Iterator[tuple[str, WarmTarget]]:
    """The targets of the old arms of these rollouts, each with the name of its rollout."""
    models = {model.name: model for model in config.models}
    for model, compared in comparisons_of(config.models):
        if isinstance(compared, RolloutConfig) and compared.name in names:
            for target in dict.fromkeys(_of_arm(compared.source, model, models, ())):
                yield compared.name, target


def warm_pools(config: Config, seconds: Mapping[str, float]) -> dict[str, float]:
    """The seconds of each pool, by those of each rollout."""
    pools: dict[str, float] = {}
    for name, target in warm_targets(config, seconds):
        pools[target.pool] = max(pools.get(target.pool, 0.0), seconds[name])
    return pools


def _of_arm(
    arm: RolloutArmConfig, model: ClientModelConfig, models: Mapping[str, ClientModelConfig], path: tuple[str, ...]
) -> Iterator[WarmTarget]:
    if arm.pool is not None:
        yield WarmTarget(arm.pool, model.name, arm.version or "")
    elif arm.model is not None:
        yield from _of_model(arm.model, models, path)


def _of_model(name: str, models: Mapping[str, ClientModelConfig], path: tuple[str, ...]) -> Iterator[WarmTarget]:
    model = models.get(name)
    if model is None or name in path:
        return
    path = (*path, name)
    if model.pipeline is not None:
        for inner in model.pipeline.models():
            yield from _of_model(inner, models, path)
    for route in model.routes:
        if route.comparison is not None:
            for side in route.comparison.sides:
                yield from _of_arm(side, model, models, path)
        else:
            yield from (WarmTarget(pool, name, "") for pool in route.pools())
