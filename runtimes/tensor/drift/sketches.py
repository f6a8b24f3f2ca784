"""The reference of one feature as counts of bins. New values are counted in the same bins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from runtimes.tensor.drift.statistics import Counts, kolmogorov_smirnov, population_stability

FINE: Final = 20
"""Bins of the Kolmogorov-Smirnov statistic in one bin of the stability index."""
MAX_LABELS: Final = 50
"""Labels of a feature that are counted apart; the rest are one."""
OTHER: Final = "other"
Floats = npt.NDArray[np.float64]


class Sketch(Protocol):
    """The reference of one feature. `bins` is the length of counts."""

    @property
    def bins(self) -> int: ...

    def count(self, values: Any) -> Counts:
        """The counts of new values."""
        ...

    def psi(self, counts: Counts) -> float: ...

    def ks(self, counts: Counts) -> float | None:
        """None for labels, which have no order."""
        ...

    def shares(self, counts: Counts) -> dict[str, float]:
        """The share of each label; empty for numbers."""
        ...


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers. Bin i has the values above `edges[i - 1]` up to `edges[i]`, the last but one those above all edges, and
    the last those that are missing (NaN)."""

    edges: Floats
    reference: Counts
    """By bin."""
    coarse: npt.NDArray[np.int64]
    """The bin of the stability index for each bin."""

    @property
    def bins(self) -> int:
        return len(self.edges) + 2

    def count(self, values: Floats) -> Counts:
        places = np.searchsorted(self.edges, values, side="left")
        places[np.isnan(values)] = self.bins - 1
        return np.bincount(places, minlength=self.bins)

    def psi(self, counts: Counts) -> float:
        """Missing values are a bin of their own."""
        return population_stability(
            np.bincount(self.coarse, weights=self.reference), np.bincount(self.coarse, weights=counts)
        )

    def ks(self, counts: Counts) -> float | None:
        """Of the values that are not missing."""
        return kolmogorov_smirnov(self.reference[:-1], counts[:-1])

    def shares(self, counts: Counts) -> dict[str, float]:
        return {}


def numbers_of(values: Floats, bins: int) -> Numbers:
    """The sketch of a column: `bins` bins of equal shares for the stability index, and 20 in each of them for the
    statistic of Kolmogorov and Smirnov. Edges are values of the column, so that equal values share a bin. Values below
    and above all of the column have bins of their own."""
    present = np.sort(values[~np.isnan(values)])
    if not len(present):
        return numbers_in(np.zeros(0), np.array([0, len(values)]), np.array([0, 1]))
    steps = np.arange(1, bins * FINE + 1)
    # The smallest value whose share of values up to it is that of the step: the inverse of the distribution function.
    picked = present[np.ceil(steps * len(present) / (bins * FINE)).astype(np.int64) - 1]
    inner = np.unique(picked)
    starts = 1 + np.searchsorted(np.unique(picked[FINE - 1 : -1 : FINE]), inner, side="left")
    coarse = np.concatenate([[0], starts, [starts[-1] + 1, starts[-1] + 2]])
    with np.errstate(over="ignore"):
        below = np.nextafter(present[0], -np.inf)
    edges = np.concatenate([[below], inner])
    empty = numbers_in(edges, np.zeros(len(edges) + 2), coarse)
    return numbers_in(edges, empty.count(values), coarse)


def numbers_in(edges: Floats, counts: Counts, coarse: npt.NDArray[np.int64] | None = None) -> Numbers:
    """The sketch of counts that are made; without `coarse` all bins count for the stability index."""
    return Numbers(edges, counts, np.arange(len(counts)) if coarse is None else coarse)


@dataclass(frozen=True, slots=True)
class Labels:
    """Texts, or the whole numbers of classes. The last bin has every label that the reference lacks or has rarely."""

    names: Sequence[bytes]
    reference: Counts
    places: dict[bytes, int] = field(repr=False)

    @property
    def bins(self) -> int:
        return len(self.names) + 1

    def count(self, values: Sequence[bytes] | npt.NDArray[Any]) -> Counts:
        """`values` are texts, or numbers, of which each is the label that it prints."""
        counts = np.zeros(self.bins, np.int64)
        if isinstance(values, np.ndarray):
            kinds, times = np.unique(values, return_counts=True)
            counted = {str(kind).encode(): int(number) for kind, number in zip(kinds.tolist(), times, strict=True)}
        else:
            counted = Counter(values)
        other = len(self.names)
        for value, number in counted.items():
            counts[self.places.get(value, other)] += number
        return counts

    def psi(self, counts: Counts) -> float:
        return population_stability(self.reference, counts)

    def ks(self, counts: Counts) -> float | None:
        return None

    def shares(self, counts: Counts) -> dict[str, float]:
        total = max(1, int(counts.sum()))
        names = [*(name.decode(errors="replace")[:64] for name in self.names), OTHER]
        shares = dict.fromkeys(names, 0.0)
        for name, number in zip(names, counts.tolist(), strict=True):
            shares[name] += number / total
        return shares


def labels_of(values: Mapping[bytes, float]) -> Labels:
    """The sketch of the counts of labels."""
    common = sorted(values, key=lambda name: (-values[name], name))[:MAX_LABELS]
    rest = sum(values.values()) - sum(values[name] for name in common)
    places = {name: place for place, name in enumerate(common)}
    return Labels(common, np.array([*(values[name] for name in common), rest]), places)
