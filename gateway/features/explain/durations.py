"""The times that the steps of rollouts need, as text for `headrace check`."""

from collections.abc import Iterator
from math import isinf

from config.schema.config import Config
from config.schema.rollout import RolloutConfig
from config.schema.units import RateLimit, format_duration, format_percent
from policies.rollouts.power import RATIOS, StepPower, step_powers
from policies.routing.rules import rollouts_of

DAY = 86400.0


def step_durations(config: Config, requests: RateLimit, failures: float) -> Iterator[str]:
    """A line for each step of each rollout."""
    for _, rollout in rollouts_of(config.models):
        yield from durations_of(rollout, requests.amount / requests.period, failures)


def durations_of(rollout: RolloutConfig, requests: float, failures: float) -> Iterator[str]:
    """A line for each step of a rollout. `requests` is in 1/s."""
    for step in step_powers(rollout, requests, failures):
        times = ", ".join(f"{ratio:g}x after {_shown(s)}" for ratio, s in zip(RATIOS, step.seconds, strict=True))
        yield f"rollout {rollout.name}: {_written(step)} sees failures of {times}"


def _written(step: StepPower) -> str:
    return f"step {format_percent(step.weight)} for {format_duration(step.least)}"


def _shown(seconds: float) -> str:
    if isinf(seconds):
        return "no time"
    if seconds >= 2 * DAY:
        return f"{seconds / DAY:.0f}d"
    rounded = round(seconds) if seconds < 600 else round(seconds / 60) * 60
    return format_duration(float(max(rounded, 1))) if rounded < 3600 else f"{rounded / 3600:.1f}h"
