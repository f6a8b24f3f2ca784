"""The shadows of a configuration, each with the identity of what it compares: counts of another one mean nothing."""

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import NamedTuple

from config.schema.config import (
    CompareConfig,
    Config,
    CopiesConfig,
    PoolConfig,
    RewriteConfig,
    RolloutArmConfig,
    RolloutConfig,
)
from policies.rollouts.progress import arm_identity


def shadow_identity(
    primaries: Iterable[RolloutArmConfig], to: RolloutArmConfig, compare: CompareConfig, pools: Mapping[str, PoolConfig]
) -> str:
    """A text that changes with the primary, the target and the comparison, but not with shares, bounds or endpoints."""
    parts = [*(arm_identity(arm, pools) for arm in (*primaries, to)), compare.model_dump_json(by_alias=True)]
    return blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


class ShadowPlan(NamedTuple):
    """A shadow of the file, and the identity of what it compares."""

    name: str
    model: str
    """The model of its route."""
    to: RolloutArmConfig
    config: CopiesConfig
    identity: str
    rewrite: RewriteConfig | None
    """The route's changes to requests."""
    source: RolloutArmConfig | None = None
    """The primary, if it is another model: the arm of a rollout."""


def planned(config: Config) -> Iterator[ShadowPlan]:
    """Every shadow of a configuration, and the copies before its rollouts."""
    pools = {pool.name: pool for pool in config.pools}
    for model in config.models:
        for route in model.routes:
            if (shadow := route.shadow) is not None:
                primaries = [RolloutArmConfig(pool=name) for name in route.pools()]
                identity = shadow_identity(primaries, shadow.to, shadow.compare, pools)
                yield ShadowPlan(shadow.label, model.name, shadow.to, shadow, identity, route.rewrite)
            if (rollout := route.rollout) is not None and rollout.shadow_first is not None:
                yield _of_rollout(model.name, route.rewrite, rollout, rollout.shadow_first, pools)


def _of_rollout(
    model: str,
    rewrite: RewriteConfig | None,
    rollout: RolloutConfig,
    copies: CopiesConfig,
    pools: Mapping[str, PoolConfig],
) -> ShadowPlan:
    source = rollout.source
    identity = shadow_identity([source], rollout.to, copies.compare, pools)
    called = source if source.model is not None else None
    return ShadowPlan(rollout.name, model, rollout.to, copies, identity, rewrite, called)
