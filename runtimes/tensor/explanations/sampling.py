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
MAX_FEATURES: Final = 4096
"""Features of a row, so that the coalitions of a permutation fit in memory."""
Floats = npt.NDArray[np.float64]
Masks = npt.NDArray[np.bool_]


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


def patches(dims: Sequence[int], lengths: Sequence[int]) -> npt.NDArray[np.int64]:
    """The patch of each element of a row of this shape. The last patch along a dimension may be shorter."""
    counts = [-(-dim // length) for dim, length in zip(dims, lengths, strict=True)]
    along = np.meshgrid(*(np.arange(dim) // length for dim, length in zip(dims, lengths, strict=True)), indexing="ij")
    return np.ravel_multi_index([place.ravel() for place in along], counts).astype(np.int64)
