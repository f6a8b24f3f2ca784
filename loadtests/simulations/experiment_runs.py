"""Many experiments of two arms at once, in numpy: the test of `policies.sequential.effect` at every value."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
BETS = np.array([0.9, 0.6, 0.4, 0.25, 0.15, 0.1, 0.06, 0.04, 0.025, 0.015, 0.01, 0.006, 0.004, 0.0025])
COSTS = -np.log1p(-BETS) - BETS
SCENARIOS = ("steady", "drift", "incident", "thompson", "thompson, drift")
EVERY = 100
"""Values between two changes of the shares."""
_DRAWS = 200


class Arms(NamedTuple):
    """The probability of a value of 1 in each arm, and the second arm's share."""

    first: float
    second: float
    share: float = 0.5


class ArmRuns(NamedTuple):
    """The result of each run."""

    highest: Floats
    """The highest logarithm of an e-value of either direction, over all values."""
    decided_at: NDArray[np.int64]
    """The number of values until the second arm wins at alpha 5 %; one more than all without a win."""
    least_share: float
    share: float
    """The mean share of the second arm at the end."""
    z: Floats
    """The highest absolute z-score after the 100th value."""


def run(
    scenario: str, arms: Arms, runs: int, values: int, seed: int, floor: float = 0.05, skill: float = 0.0
) -> ArmRuns:
    """Simulate. `skill`: the part of the variance that a baseline predicts; 0 without one."""
    rng = np.random.default_rng(seed)
    share = np.full(runs, arms.share)
    total, squares, weight = np.zeros(runs), np.zeros(runs), np.zeros(runs)
    counts, sums = np.zeros((2, runs)), np.zeros((2, runs))
    highest, z, decided = np.full(runs, -np.inf), np.zeros(runs), np.full(runs, values + 1)
    least_share = arms.share
    for i in range(values):
        if scenario.startswith("thompson") and i and i % EVERY == 0:
            share = _sampled(rng, counts, sums, floor)
            least_share = min(least_share, float(share.min()), float((1 - share).min()))
        second = rng.random(runs) < share
        level = np.where(second, arms.second, arms.first)
        luck = rng.random(runs)
        y = (luck < _drifted(scenario, level, i, values)).astype(float)
        prediction = (0.5 + sums.sum(0)) / (1 + i)
        if skill:
            # The subject's own level is a part of the luck that its baseline has shown.
            own = np.where(rng.random(runs) < skill, (luck < (arms.first + arms.second) / 2).astype(float), prediction)
            prediction = np.clip(own, 0.0, 1.0)
        scale = np.minimum(share, 1 - share) / 2
        x = scale * (y - prediction) / np.where(second, share, share - 1)
        estimate = np.clip(np.divide(total, weight, out=np.zeros(runs), where=weight > 0), -1, 1)
        squares += (x - scale * estimate) ** 2
        total += x
        weight += scale
        above, below = _log_mixture(total, squares), _log_mixture(-total, squares)
        highest = np.maximum(highest, np.maximum(above, below))
        decided = np.where((above >= np.log(2 / 0.05)) & (decided > values), i + 1, decided)
        for arm, chosen in enumerate((~second, second)):
            counts[arm] += chosen
            sums[arm] += np.where(chosen, y, 0.0)
        if i >= EVERY:
            z = np.maximum(z, np.abs(_z(counts, sums)))
    return ArmRuns(highest, decided, least_share, float(share.mean()), z)


def _log_mixture(excess: Floats, squares: Floats) -> Floats:
    terms = BETS[:, None] * excess - COSTS[:, None] * squares
    highest = terms.max(0)
    mixed: Floats = highest + np.log(np.exp(terms - highest).mean(0))
    return mixed


def _drifted(scenario: str, level: Floats, i: int, values: int) -> Floats:
    """The level of each arm at a moment: a drift and an incident are those of both arms."""
    if "drift" in scenario:
        return level + (1 - level) * 0.8 * i / values
    if scenario == "incident" and values // 3 <= i < values // 2:
        return level * 0.1
    return level


def _sampled(rng: np.random.Generator, counts: Floats, sums: Floats, floor: float) -> Floats:
    """The second arm's share by Thompson sampling, in hundredths."""
    first = rng.beta(1 + sums[0], 1 + counts[0] - sums[0], (_DRAWS, counts.shape[1]))
    second = rng.beta(1 + sums[1], 1 + counts[1] - sums[1], (_DRAWS, counts.shape[1]))
    won = (second > first).mean(0)
    shares: Floats = np.clip(np.round(100 * (floor + (1 - 2 * floor) * won)) / 100, floor, 1 - floor)
    return shares


def _z(counts: Floats, sums: Floats) -> Floats:
    """The z-score of two proportions."""
    pooled = sums.sum(0) / counts.sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.sqrt(pooled * (1 - pooled) * (1 / counts[0] + 1 / counts[1]))
        scores: Floats = np.nan_to_num((sums[1] / counts[1] - sums[0] / counts[0]) / error)
    return scores
