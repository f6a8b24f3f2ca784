"""Confidence sequences of the rate of an event, and of the difference of two rates.

Each arm must have its share of the subjects. Without it no comparison of the arms is worth reading.
"""

from collections.abc import Callable, Sequence
from math import inf, lgamma, log
from typing import NamedTuple

from policies.sequential.event_ratio import log_beta

_HALVINGS = 60
_PRIOR = 0.5


class Proportion(NamedTuple):
    """The number of events among some trials."""

    events: int
    trials: int


def rate_interval(counted: Proportion, alpha: float, a: float = _PRIOR, b: float = _PRIOR) -> tuple[float, float]:
    """The confidence sequence of a rate: all p with ``B(a+S, b+n-S) / (B(a, b) p^S (1-p)^(n-S)) < 1/alpha``.

    The beta-binomial mixture of Howard, Ramdas, McAuliffe and Sekhon, arXiv 1810.08240; `a` and `b`, chosen before
    the first trial, only decide where the interval is narrow.
    """
    events, trials = counted
    if trials == 0:
        return 0.0, 1.0
    mixture = log_beta(a + events, b + trials - events) - log_beta(a, b) + log(alpha)

    def rejected(p: float) -> bool:
        if p <= 0:
            return events > 0
        if p >= 1:
            return events < trials
        return mixture - events * log(p) - (trials - events) * log(1 - p) >= 0

    estimate = events / trials
    return edge(rejected, estimate, 0.0), edge(rejected, estimate, 1.0)


def difference_interval(first: Proportion, second: Proportion, alpha: float) -> tuple[float, float]:
    """The confidence sequence of the second rate less the first: each rate has half of alpha."""
    (low, high), (other_low, other_high) = rate_interval(first, alpha / 2), rate_interval(second, alpha / 2)
    return other_low - high, other_high - low


def edge(rejected: Callable[[float], bool], inside: float, outside: float) -> float:
    """The edge of an interval between a point in it and a bound, rounded outward."""
    if not rejected(outside):
        return outside
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        if rejected(middle):
            outside = middle
        else:
            inside = middle
    return outside


MISMATCH_ALPHA = 0.001
_ASSIGNED_PRIOR = 100.0
"""The weight of the expected shares: the test looks for small differences."""


class Assigned(NamedTuple):
    """The subjects of each arm while the arms had one set of shares: a stratum."""

    shares: tuple[float, ...]
    subjects: tuple[int, ...]


def log_mismatch(strata: Sequence[Assigned]) -> float:
    """The logarithm of the e-value against "each subject was assigned with the arms' shares".

    ``prod over strata of G(A)/G(A+n) prod over arms G(A_k+n_k)/(G(A_k) w_k^n_k)``, with ``A_k = 100 w_k`` and the
    gamma function G: the Dirichlet mixture of Lindon and Malek, arXiv 2011.03567. A subject counts once.
    """
    return sum(map(_log_mismatch, strata))


def _log_mismatch(stratum: Assigned) -> float:
    arms = [(w, n) for w, n in zip(stratum.shares, stratum.subjects, strict=True) if w > 0]
    if sum(n for _, n in arms) < sum(stratum.subjects):
        return inf  # an arm without a share got a subject
    weight, total = sum(_ASSIGNED_PRIOR * w for w, _ in arms), sum(n for _, n in arms)
    parts = (lgamma(_ASSIGNED_PRIOR * w + n) - lgamma(_ASSIGNED_PRIOR * w) - n * log(w) for w, n in arms)
    return lgamma(weight) - lgamma(weight + total) + sum(parts)
