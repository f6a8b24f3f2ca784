"""Shapley values by all coalitions of few features, or by permutations of many. See `sampling`."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from runtimes.tensor.explanations import sampling
from runtimes.tensor.explanations.estimates import ValueEstimate, ValueMethod
from runtimes.tensor.explanations.sampling import MAX_EXACT, MAX_FEATURES, Floats, Masks

MAX_ROUNDS: Final = 10
"""Pairs of permutations for each row, if the budget permits: as many as SHAP's explainer has by default."""


def coalitions(features: int) -> int:
    """All coalitions but the empty and the full one."""
    return max(0, (1 << features) - 2)


def least(features: int) -> int:
    """The coalitions of one permutation and its reverse, or all if they are fewer."""
    pair = 2 * max(0, features - 1)
    return min(coalitions(features), pair) if features <= MAX_EXACT else pair


def begin(rows: int, features: int, most: int, seed: int) -> ValueEstimate:
    """See `ValueMethod`."""
    if features <= MAX_EXACT and coalitions(features) <= most:
        return AllCoalitions(rows, features)
    return Permutations(rows, features, most, seed)


PERMUTATIONS: Final = ValueMethod("permutation", least, begin, MAX_FEATURES)


class AllCoalitions:
    """Exact."""

    method = "exact"
    is_enough = False

    def __init__(self, rows: int, features: int) -> None:
        self._rows = rows
        self._features = features
        self._means: Floats | None = None

    def round(self) -> Masks | None:
        if self._means is not None or self._features < 2:
            return None
        return np.tile(sampling.all_coalitions(self._features), (self._rows, 1))

    def add(self, means: Floats, base: Floats, full: Floats) -> None:
        self._means = means

    def values(self, base: Floats, full: Floats) -> Floats:
        if not self._features:
            return np.zeros((*full.shape, 0))
        if self._means is None:  # of one feature, everything is its part
            return (full - base)[:, :, None]
        rows = zip(self._means, base, full, strict=True)
        return np.stack([sampling.exact_values(*row) for row in rows])


class Permutations:
    """The mean of some permutations, each with its reverse."""

    method = "permutation"

    def __init__(self, rows: int, features: int, most: int, seed: int) -> None:
        self._rows = rows
        self._features = features
        self._rounds = min(MAX_ROUNDS, most // (2 * (features - 1)))
        self._random = np.random.default_rng(seed)
        self._orders: list[npt.NDArray[np.int64]] = []
        self._sums: Floats | None = None
        self._done = 0

    @property
    def is_enough(self) -> bool:
        """Fewer permutations are an answer too, and their parts add up as well."""
        return self._done > 0

    def round(self) -> Masks | None:
        if self._done == self._rounds:
            return None
        self._orders = [self._random.permutation(self._features) for _ in range(self._rows)]
        return np.concatenate([sampling.path(order) for order in self._orders])

    def add(self, means: Floats, base: Floats, full: Floats) -> None:
        if self._sums is None:
            self._sums = np.zeros((*full.shape, self._features))
        for row, order in enumerate(self._orders):
            self._sums[row] += sampling.path_values(order, means[row], base[row], full[row])
        self._done += 1

    def values(self, base: Floats, full: Floats) -> Floats:
        assert self._sums is not None
        return self._sums / self._done
