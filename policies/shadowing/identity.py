"""The identity of what a shadow compares. Counts of other targets, or of another comparison, say nothing about it."""

from collections.abc import Iterable, Mapping
from hashlib import blake2b

from config.schema.config import CompareConfig, PoolConfig, RolloutArmConfig
from policies.rollouts.fingerprint import arm_identity


def shadow_identity(
    primaries: Iterable[RolloutArmConfig], to: RolloutArmConfig, compare: CompareConfig, pools: Mapping[str, PoolConfig]
) -> str:
    """A text that changes with the primary, the target and the comparison, but not with shares, bounds or endpoints."""
    parts = [*(arm_identity(arm, pools) for arm in (*primaries, to)), compare.model_dump_json(by_alias=True)]
    return blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()
