"""The time series of a rollout: its weight and its evidence."""

from typing import Any, NamedTuple

from config.schema.rollout import RolloutConfig
from policies.rollouts.progress import RolloutProgress
from policies.rollouts.report import described

LEAST_SECONDS = 30.0
GROWTH = 0.002
"""The next point comes after this part of the time since the first point, so their number stays below 10,000."""
CHANGE_SECONDS = 1.0


class PointTimes(NamedTuple):
    """The times of the first and the last point of a rollout, in Unix seconds, and the weight of the last one."""

    first: float
    last: float
    weight: float

    def is_due(self, now: float, weight: float) -> bool:
        """Whether the series needs another point."""
        if weight != self.weight:
            return now >= self.last + CHANGE_SECONDS
        return now >= self.last + max(LEAST_SECONDS, (now - self.first) * GROWTH)


def rollout_point(config: RolloutConfig, progress: RolloutProgress) -> dict[str, Any]:
    """One point: the weight, the step and the status; of each condition the e-value and the interval of the ratio."""
    view = described(config, progress)
    return {
        "weight": view["weight"],
        "step": view["step"],
        "status": view["status"],
        "requests": view["requests"],
        "conditions": [
            {"kind": kind, "event": each["event"], "e_value": each["e_value"], "ratio": each["ratio"]}
            for kind in ("back_if", "on_if")
            for each in view[kind]
        ],
    }
