"""How far two samples are apart, from the counts of the same bins."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

FLOOR: Final = 1e-4
"""The smallest share of a bin. Without it an empty bin would have an infinite weight."""
Counts = npt.NDArray[Any]


def population_stability(reference: Counts, counts: Counts) -> float:
    """The population stability index of two arrays of counts, with the same bins.

    It is the sum of (q - p) ln(q / p), p and q being the shares of each bin, at least `FLOOR`. It is symmetric, and 0
    for equal shares; by convention 0.1 is a small change and 0.25 a large one. Source: N. Siddiqi, Credit Risk
    Scorecards, Wiley 2006. Without drift its mean is about (bins - 1)(1/n + 1/m) for samples of n and m values:
    B. Yurdakul, Statistical Properties of Population Stability Index, Western Michigan University 2018.
    """
    before, now = _shares(reference), _shares(counts)
    return float(np.sum((now - before) * np.log(now / before)))


def kolmogorov_smirnov(reference: Counts, counts: Counts) -> float:
    """The two-sample statistic of Kolmogorov and Smirnov, of counts in the order of their bins: from 0 to 1.

    It is the largest distance of the two distribution functions at the ends of the bins, where both are exact. So it
    is the statistic of the values rounded up to the ends of their bins. That of the values themselves is larger by
    the larger of the two shares of one bin, at most. Source: N. Smirnov, Table for Estimating the Goodness of Fit of
    Empirical Distributions, Annals of Mathematical Statistics 19, 1948.
    """
    if not reference.sum() or not counts.sum():
        return 0.0
    distances = np.cumsum(reference) / reference.sum() - np.cumsum(counts) / counts.sum()
    return float(np.max(np.abs(distances)))


def _shares(counts: Counts) -> npt.NDArray[np.float64]:
    shares: npt.NDArray[np.float64] = np.maximum(counts / max(1, counts.sum()), FLOOR)
    return shares
