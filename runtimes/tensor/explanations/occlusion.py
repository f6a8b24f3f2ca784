"""Occlusion: how the output changes if one feature, or one patch of an image, is covered.

(Zeiler and Fergus, "Visualizing and understanding convolutional networks", 2014, as in Captum's `Occlusion` with
strides as long as its windows.)
"""

from __future__ import annotations

from typing import Final

import numpy as np

from runtimes.tensor.explanations.estimates import ValueEstimate, ValueMethod
from runtimes.tensor.explanations.sampling import MAX_FEATURES, Floats, Masks

_ROUND: Final = 256
"""Features of a row that are covered in one round."""


def least(features: int) -> int:
    """Each feature is covered once."""
    return features


def begin(rows: int, features: int, most: int, seed: int) -> ValueEstimate:
    """See `ValueMethod`. Nothing is left to chance."""
    return Occlusion(rows, features)


OCCLUSION: Final = ValueMethod("occlusion", least, begin, MAX_FEATURES, is_additive=False)


class Occlusion:
    """The part of a feature is the output minus the mean output without it: a part of the map is no answer."""

    method = "occlusion"
    is_enough = False

    def __init__(self, rows: int, features: int) -> None:
        self._rows = rows
        self._features = features
        self._means: list[Floats] = []
        self._count = 0

    def round(self) -> Masks | None:
        covered = np.arange(self._count, min(self._features, self._count + _ROUND))
        if not covered.size:
            return None
        return np.tile(np.arange(self._features) != covered[:, None], (self._rows, 1))

    def add(self, means: Floats, base: Floats, full: Floats) -> None:
        self._means.append(means)
        self._count += means.shape[1]

    def values(self, base: Floats, full: Floats) -> Floats:
        without = np.concatenate(self._means, axis=1) if self._means else np.zeros((len(full), 0, full.shape[1]))
        return np.moveaxis(full[:, None] - without, 1, 2)
