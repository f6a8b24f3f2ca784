"""Whether each arm has its share of the subjects. Without it no comparison of the arms is worth reading."""

from collections.abc import Sequence
from math import inf, lgamma, log
from typing import NamedTuple

ALPHA = 0.001
_PRIOR = 100.0
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
    weight, total = sum(_PRIOR * w for w, _ in arms), sum(n for _, n in arms)
    parts = (lgamma(_PRIOR * w + n) - lgamma(_PRIOR * w) - n * log(w) for w, n in arms)
    return lgamma(weight) - lgamma(weight + total) + sum(parts)
