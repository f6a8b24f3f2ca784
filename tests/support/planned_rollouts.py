"""Rollouts from one pool to another."""

from typing import Any

from config.schema.rollout import RolloutConfig

STEPS = [{"weight": "5%", "for": "10m"}, {"weight": "50%", "for": "30m"}]


def plan(**changes: Any) -> RolloutConfig:
    written = {"name": "r", "from": "v1", "to": "v2", "steps": STEPS, **changes}
    return RolloutConfig.model_validate(written)
