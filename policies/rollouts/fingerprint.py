"""The identity of a comparison's arms. Counts of other arms have no meaning for these."""

import json
from collections.abc import Mapping
from hashlib import blake2b

from config.schema.config import PoolConfig
from config.schema.experiment import ExperimentConfig
from config.schema.rollout import RolloutArmConfig, RolloutConfig

_SERVED = {"protocol", "model", "runtime"}
"""The fields of a pool that decide its answers. Endpoints may come and go."""


def fingerprint(config: RolloutConfig | ExperimentConfig, pools: Mapping[str, PoolConfig]) -> str:
    """A text that changes with the arms and with the subjects, but not with steps, conditions or endpoints."""
    parts = [config.sticky, *(arm_identity(arm, pools) for arm in config.sides)]
    if isinstance(config, ExperimentConfig):
        parts.append(config.metric)  # a metric that is selected after its values are known has no valid verdict
    return blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


def arm_identity(arm: RolloutArmConfig, pools: Mapping[str, PoolConfig]) -> str:
    """A text that changes with the answers of an arm."""
    pool = pools.get(arm.pool or "")
    served = None if pool is None else pool.model_dump(mode="json", include=_SERVED)
    return json.dumps([arm.model_dump(mode="json", exclude={"name", "weight"}), served], sort_keys=True)
