"""Shapley values from the outputs of a model for mixtures of a row and background rows.

A coalition is a set of features that have the row's values; the others have those of a background row. The value of a
coalition is the model's mean output over all background rows. Few features: all coalitions, which is exact. Many:
permutations, each with its reverse, as in the permutation explainer of SHAP (Lundberg and Lee, "A Unified Approach to
Interpreting Model Predictions", 2017; Castro, Gómez and Tejada, "Polynomial calculation of the Shapley value based on
sampling", 2009). Either way base and values add up to the output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import factorial
from typing import Final

import numpy as np
import numpy.typing as npt

from runtimes.tensor.interfaces import Array, Tensors

MAX_EXACT: Final = 12
"""Features up to which all coalitions may be asked for."""
MAX_ROUNDS: Final = 10
"""Pairs of permutations for each row, if the budget permits: as many as SHAP's explainer has by default."""
MAX_FEATURES: Final = 4096
"""Features of a row, so that the coalitions of a permutation fit in memory."""
Floats = npt.NDArray[np.float64]
Masks = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class SamplingPlan:
    """How often each row is explained, within a budget of rows of the model."""

    is_exact: bool
    rounds: int
    """0: the budget is too small."""
    needed: int
    """The rows of the model for one round."""


def plan(rows: int, features: int, background: int, budget: int, *, own_bases: bool = False) -> SamplingPlan:
    """The plan for a request. The rows themselves count too.

    With `own_bases`, so do the background rows for each row: its base is computed for it alone.
    """
    alone = rows * (1 + background) if own_bases else rows
    left = budget - alone
    every = rows * background * (2**features - 2) if features <= MAX_EXACT else budget + 1
    pair = rows * background * 2 * (features - 1)
    if every <= left:
        return SamplingPlan(True, 1, alone + every)
    if not pair:  # of one feature all coalitions are known: only the rows and bases are computed
        return SamplingPlan(False, 0, alone)
    return SamplingPlan(False, min(MAX_ROUNDS, max(0, left) // pair), alone + pair)


def all_coalitions(features: int) -> Masks:
    """All coalitions but the empty and the full one, by their number: bit i is feature i."""
    numbers = np.arange(1, 2**features - 1)
    return (numbers[:, None] >> np.arange(features) & 1).astype(np.bool_)


def exact_values(middle: Floats, base: Floats, full: Floats) -> Floats:
    """The Shapley values of one row: [targets, features].

    `middle`: [coalitions, targets] in the order of `all_coalitions`; `base` and `full`: [targets].
    """
    value = np.concatenate([base[None], middle, full[None]])
    count = len(value).bit_length() - 1
    subsets = np.arange(len(value))
    sizes = np.array([bin(number).count("1") for number in subsets])
    weights = np.array([factorial(size) * factorial(count - size - 1) for size in range(count)]) / factorial(count)
    parts = np.empty((value.shape[1], count))
    for feature in range(count):
        without = subsets[(subsets >> feature & 1) == 0]
        gains = value[without | 1 << feature] - value[without]
        parts[:, feature] = weights[sizes[without]] @ gains
    return parts


def permutation(features: int, random: np.random.Generator) -> npt.NDArray[np.int64]:
    """A permutation of the features."""
    return random.permutation(features)


def path(order: npt.NDArray[np.int64]) -> Masks:
    """The coalitions along a permutation and along its reverse, without the empty and the full one."""
    count = len(order)
    places = np.argsort(order)
    steps = np.arange(count - 1)[:, None]
    return np.concatenate([places <= steps, count - 1 - places <= steps])


def path_values(order: npt.NDArray[np.int64], middle: Floats, base: Floats, full: Floats) -> Floats:
    """The values of one row by a permutation and its reverse: [targets, features]. See `exact_values`."""
    count = len(order)
    parts = np.zeros((middle.shape[1], count))
    for steps, between in zip((order, order[::-1]), np.split(middle, 2), strict=True):
        value = np.concatenate([base[None], between, full[None]])
        parts[:, steps] += np.diff(value, axis=0).T / 2
    return parts


@dataclass(frozen=True, slots=True)
class Mixer:
    """Mixes rows. `places`: by input, the feature of each element of a row."""

    background: Tensors
    places: Mapping[str, npt.NDArray[np.int64]]

    @property
    def count(self) -> int:
        """The background rows."""
        return len(next(iter(self.background.values())))

    def mixed(self, rows: Tensors, of: npt.NDArray[np.int64], masks: Masks, begin: int, end: int) -> dict[str, Array]:
        """The model's rows from `begin` to `end` of those of all coalitions, each for every background row in turn.

        `of` is the row of each coalition. Inputs without a background have the values of the row.
        """
        at = np.arange(begin, end)
        coalition, behind = np.divmod(at, self.count)
        owner = of[coalition]
        made: dict[str, Array] = {}
        for name, array in rows.items():
            own = array[owner]
            if (other := self.background.get(name)) is None:
                made[name] = own
                continue
            present = masks[coalition][:, self.places[name]].reshape(own.shape)
            made[name] = np.where(present, own, other[behind])
        return made


def places_of(shapes: Sequence[tuple[str, tuple[int, ...]]]) -> tuple[dict[str, npt.NDArray[np.int64]], int]:
    """Each element of each input as one feature, and the number of features."""
    places: dict[str, npt.NDArray[np.int64]] = {}
    at = 0
    for name, dims in shapes:
        width = int(np.prod(dims, dtype=np.int64))
        places[name] = np.arange(at, at + width)
        at += width
    return places, at
