"""The time that a step needs to detect a worse arm."""

from collections.abc import Iterator
from math import inf, log
from typing import NamedTuple

from config.schema.rollout import BackConfig, RolloutConfig
from policies.sequential.event_ratio import EventCount, log_rise

RATIOS = (2.0, 3.0, 5.0)
_MOST_EVENTS = 10_000_000


class StepPower(NamedTuple):
    """Seconds until about half of all rollouts alarm, for each of `RATIOS`; infinite if the step cannot detect it."""

    weight: float
    least: float
    """Shortest time of the step."""
    seconds: tuple[float, ...]


def step_powers(config: RolloutConfig, requests: float, failures: float) -> Iterator[StepPower]:
    """The power of each step, of its condition on failures, without the events of earlier steps.

    `requests` is the rate of the route's requests, in 1/s; `failures` the share of `from`'s requests that fail.
    """
    condition = next((each for each in config.back_if if each.metric == "failures"), None)
    if condition is None:
        return
    needed = log(len(config.back_if) / config.alpha)
    for step in config.steps:
        seconds = tuple(_seconds(step.weight, ratio, condition, needed, requests, failures) for ratio in RATIOS)
        yield StepPower(step.weight, step.least, seconds)


def _seconds(
    share: float, ratio: float, condition: BackConfig, needed: float, requests: float, failures: float
) -> float:
    events = events_until(share, ratio, condition.above, needed)
    rate = requests * (failures * (1 - share) + min(failures * ratio, 1.0) * share)
    return events / rate if rate > 0 else inf


def events_until(share: float, ratio: float, above: float, needed: float) -> float:
    """Events until the e-value of a canary with this ratio reaches its bound if its events come evenly, which is near
    the median."""
    if not 0 < share < 1 or ratio <= above:
        return inf
    q = share * ratio / (share * ratio + 1 - share)
    low, high = 0, 1
    while log_rise([EventCount(share, high, round(high * q))], above) < needed:
        low, high = high, 2 * high
        if high > _MOST_EVENTS:
            return inf
    while high - low > 1:
        middle = (low + high) // 2
        if log_rise([EventCount(share, middle, round(middle * q))], above) < needed:
            low = middle
        else:
            high = middle
    return float(high)
