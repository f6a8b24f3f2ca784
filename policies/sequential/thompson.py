"""Thompson sampling: each arm gets the probability that it is the best one, and no less than a floor."""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

DRAWS = 2000


class Rewards(NamedTuple):
    """The sum of rewards in [0, 1], and their number."""

    total: float
    trials: float


def thompson_shares(arms: Sequence[Rewards], floor: float, rng: Random, draws: int = DRAWS) -> list[float]:
    """The shares of arms by their rewards.

    Each arm's mean has the beta posterior of a uniform prior, which is too wide for rewards between 0 and 1, and an
    arm's share is the part of the draws that it wins. (Thompson, "On the likelihood that one unknown probability
    exceeds another", Biometrika 1933.) The floor leaves each arm enough subjects for a test. Raises ValueError if the
    floors exceed the whole.
    """
    if floor * len(arms) > 1:
        raise ValueError(f"{len(arms)} arms cannot each have {floor:g}")
    wins = [0] * len(arms)
    for _ in range(draws):
        rates = [rng.betavariate(1 + arm.total, 1 + max(arm.trials - arm.total, 0.0)) for arm in arms]
        wins[rates.index(max(rates))] += 1
    free = 1 - floor * len(arms)
    return [floor + free * won / draws for won in wins]
