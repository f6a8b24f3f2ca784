"""Shapley values by a weighted regression on coalitions: Kernel SHAP (Lundberg and Lee, 2017).

The coalitions are those of SHAP's `KernelExplainer`: all of the sizes that fit, from the outermost inwards, and a
sample of the others, each with its complement. All features are in the regression (`l1_reg=0` there), whose sum is
bound to the output. One choice of coalitions serves all rows of a request.
"""

from __future__ import annotations

from itertools import combinations
from math import comb
from typing import Final

import numpy as np
import numpy.typing as npt

from runtimes.tensor.explanations.estimates import ValueEstimate, ValueMethod
from runtimes.tensor.explanations.permutations import AllCoalitions, coalitions
from runtimes.tensor.explanations.sampling import MAX_EXACT, Floats, Masks

MAX_FEATURES: Final = 1024
"""Features of a row: the regression takes time by their square."""
_SAMPLES: Final = 2048
"""Coalitions of a row beside two for each feature, if the budget permits: as many as SHAP's explainer has."""
_ROUND: Final = 256
"""Coalitions of a row that are asked for at once, after those that the answer needs."""


def least(features: int) -> int:
    """Each feature alone, and all but each: the regression then has one solution."""
    pairs = 2 * features
    return min(coalitions(features), pairs) if features <= MAX_EXACT else pairs


def begin(rows: int, features: int, most: int, seed: int) -> ValueEstimate:
    """See `ValueMethod`."""
    if features <= MAX_EXACT and coalitions(features) <= most:
        return AllCoalitions(rows, features)  # the regression on all coalitions has the same solution
    return Kernel(rows, features, most, seed)


KERNEL: Final = ValueMethod("kernel", least, begin, MAX_FEATURES)


class Kernel:
    """At the deadline, the coalitions so far are an answer."""

    method = "kernel"

    def __init__(self, rows: int, features: int, most: int, seed: int) -> None:
        self._rows = rows
        self._features = features
        self._masks, self._weights, self._fixed = chosen(
            features, min(most, 2 * features + _SAMPLES), np.random.default_rng(seed)
        )
        self._means: list[Floats] = []
        self._count = 0

    @property
    def is_enough(self) -> bool:
        return self._count > 0

    def round(self) -> Masks | None:
        if self._count == len(self._masks):
            return None
        size = _ROUND if self._count else max(_ROUND, 2 * self._features)
        masks = self._masks[self._count : self._count + size]
        return np.tile(masks, (self._rows, 1))

    def add(self, means: Floats, base: Floats, full: Floats) -> None:
        self._means.append(means)
        self._count += means.shape[1]

    def values(self, base: Floats, full: Floats) -> Floats:
        weights = self._weights[: self._count].copy()
        sampled = weights[self._fixed :]
        if sampled.size:  # they stand for all sizes that are not complete
            sampled *= self._weights[self._fixed :].sum() / sampled.sum()
        return solved(self._masks[: self._count], weights, np.concatenate(self._means, axis=1), base, full)


def chosen(features: int, most: int, random: np.random.Generator) -> tuple[Masks, Floats, int]:
    """Up to `most` coalitions, their weights, and how many of them, from the first, are of complete sizes.

    A size stands for itself and its complement. The smallest is always complete.
    """
    sizes, paired = features // 2, (features - 1) // 2
    share = np.array([(features - 1) / (size * (features - size)) for size in range(1, sizes + 1)])
    share[:paired] *= 2
    share /= share.sum()
    masks: list[npt.NDArray[np.bool_]] = []
    weights: list[float] = []
    rest = share.copy()
    size = 1
    while size <= sizes:
        count = comb(features, size) * (2 if size <= paired else 1)
        left = most - len(masks)
        if count > left or (size > 1 and left * rest[size - 1] / count < 1 - 1e-8):
            break
        if rest[size - 1] < 1:
            rest /= 1 - rest[size - 1]
        for members in combinations(range(features), size):
            mask = np.zeros(features, np.bool_)
            mask[list(members)] = True
            masks += [mask, ~mask] if size <= paired else [mask]
        weights += [share[size - 1] / count] * count
        size += 1
    fixed = len(masks)
    if size <= sizes and (left := most - fixed) > 1:
        drawn, times = _drawn(features, size, share, left, random)
        masks += drawn
        weights += list(share[size - 1 :].sum() * times / times.sum())
    return np.array(masks), np.array(weights), fixed


def _drawn(
    features: int, smallest: int, share: Floats, most: int, random: np.random.Generator
) -> tuple[list[npt.NDArray[np.bool_]], Floats]:
    """Coalitions of random sizes from `smallest`, each followed by its complement, and how often each was drawn."""
    paired = (features - 1) // 2
    chances = share.copy()
    chances[:paired] /= 2  # each draw has two
    chances = chances[smallest - 1 :] / chances[smallest - 1 :].sum()
    places: dict[bytes, int] = {}
    masks: list[npt.NDArray[np.bool_]] = []
    times: list[float] = []
    for size in random.choice(len(chances), 4 * most, p=chances) + smallest:
        if len(masks) + 2 > most:
            break
        mask = np.zeros(features, np.bool_)
        mask[random.permutation(features)[:size]] = True
        both = [mask, ~mask] if size <= paired else [mask]
        for one in both:
            place = places.setdefault(one.tobytes(), len(masks))
            if place == len(masks):
                masks.append(one)
                times.append(0.0)
            times[place] += 1
    return masks, np.array(times)


def solved(masks: Masks, weights: Floats, means: Floats, base: Floats, full: Floats) -> Floats:
    """The weighted least squares with the sum of each row's values bound to its output: [rows, targets, features].

    `means`: [rows, coalitions, targets]; `base` and `full`: [rows, targets].
    """
    gain = full - base
    present = masks.astype(np.float64)
    last = present[:, -1]
    design = present[:, :-1] - last[:, None]
    sought = means - base[:, None] - last[None, :, None] * gain[:, None]
    rooted = np.sqrt(weights)
    columns = np.moveaxis(sought * rooted[None, :, None], 1, 0).reshape(len(masks), -1)
    parts = np.linalg.lstsq(design * rooted[:, None], columns, rcond=None)[0]
    values = np.moveaxis(parts.reshape(-1, *gain.shape), 0, 2)
    return np.concatenate([values, (gain - values.sum(axis=2))[:, :, None]], axis=2)
