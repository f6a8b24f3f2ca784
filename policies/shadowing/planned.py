"""The shadows of a configuration."""

from collections.abc import Iterator
from typing import NamedTuple

from config.schema.config import Config, CopiesConfig, RolloutArmConfig
from policies.shadowing.identity import shadow_identity


class ShadowPlan(NamedTuple):
    """A shadow of the file, and the identity of what it compares."""

    name: str
    model: str
    to: RolloutArmConfig
    config: CopiesConfig
    identity: str


def planned(config: Config) -> Iterator[ShadowPlan]:
    """Every shadow of a configuration."""
    pools = {pool.name: pool for pool in config.pools}
    for model in config.models:
        for route in model.routes:
            if (shadow := route.shadow) is not None:
                primaries = [RolloutArmConfig(pool=name) for name in route.pools()]
                identity = shadow_identity(primaries, shadow.to, shadow.compare, pools)
                yield ShadowPlan(shadow.label, model.name, shadow.to, shadow, identity)
