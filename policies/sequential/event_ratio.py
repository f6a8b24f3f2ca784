"""The ratio of two arms' event rates, tested at every event.

An event is any boolean of one subject or request: it failed, it was slower than a bound, a guard blocked it. Given
that an event happens, the event is the canary's with probability ``q = w r / (w r + 1 - w)``: `w` is the share of the
canary when the request was assigned, `r` the ratio of the canary's rate to that of the other arm. The rates themselves
cancel, so drift and incidents that both arms share do not matter. (Conditioning on the event as in Lindon and Malek,
"Anytime-Valid Inference for Multinomial Count Data", arXiv 2011.03567; the mixture is a mean of likelihood ratios.)
"""

from collections.abc import Callable, Sequence
from math import exp, inf, isinf, lgamma, log
from typing import NamedTuple

RISES = (1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)
"""Alternatives of the alarm: the canary's ratio is so many times the tested ratio."""
FALLS = (0.9, 0.8, 0.65, 0.5, 0.33, 0.2)
"""Alternatives of the proof that the canary's ratio is below the tested ratio."""
_PRIOR = 10.0
_WIDEST = 60.0
"""Bound on the logarithm of a ratio in a search."""
_HALVINGS = 100


class EventCount(NamedTuple):
    """The events of the requests that were assigned while the canary had one share: a stratum."""

    share: float
    """The probability that a request was assigned to the canary."""
    total: int
    canary: int


def log_rise(strata: Sequence[EventCount], ratio: float = 1.0) -> float:
    """The logarithm of the e-value against "the canary's rate is at most `ratio` times the other's"."""
    return _log_mixture(strata, ratio, RISES)


def log_fall(strata: Sequence[EventCount], ratio: float) -> float:
    """The logarithm of the e-value against "the canary's rate is at least `ratio` times the other's"."""
    return _log_mixture(strata, ratio, FALLS)


def e_value(logarithm: float) -> float:
    """The e-value of its logarithm; infinite if it exceeds a float."""
    return exp(logarithm) if logarithm < 700 else inf


def ratio_interval(strata: Sequence[EventCount], alpha: float) -> tuple[float, float]:
    """The confidence sequence of the ratio: (0, inf) without an event.

    All ratios whose e-value is below 1/alpha. Each stratum has the beta mixture of Howard, Ramdas, McAuliffe and
    Sekhon, arXiv 1810.08240, whose weight is centred at equal rates. If no single ratio fits all strata, the interval
    spans those of the strata.
    """
    strata = [stratum for stratum in strata if stratum.total and 0 < stratum.share < 1]
    if not strata:
        return 0.0, inf

    def log_e(log_ratio: float) -> float:
        return sum(_log_beta_mixture(stratum, log_ratio) for stratum in strata) + log(alpha)

    canary, total = sum(stratum.canary for stratum in strata), sum(stratum.total for stratum in strata)
    middle = _lowest(log_e)
    if log_e(middle) >= 0 and len(strata) > 1:
        intervals = [ratio_interval([stratum], alpha / len(strata)) for stratum in strata]
        return min(low for low, _ in intervals), max(high for _, high in intervals)
    low = 0.0 if canary == 0 else exp(_crossing(log_e, middle, -_WIDEST))
    high = inf if canary == total else exp(_crossing(log_e, middle, _WIDEST))
    return low, high


def _log_mixture(strata: Sequence[EventCount], ratio: float, alternatives: Sequence[float]) -> float:
    """The logarithm of the mean, over the alternatives, of the product of the strata's likelihood ratios."""
    terms = [0.0] * len(alternatives)
    for share, total, canary in strata:
        if not 0 < share < 1:
            continue  # only one arm had requests, so there is nothing to compare
        q0 = _canary_probability(share, ratio)
        for i, factor in enumerate(alternatives):
            q = _canary_probability(share, ratio * factor)
            terms[i] += canary * log(q / q0) + (total - canary) * log((1 - q) / (1 - q0))
    highest = max(terms)
    return highest + log(sum(exp(term - highest) for term in terms) / len(terms))


def _canary_probability(share: float, ratio: float) -> float:
    """The probability that an event is the canary's."""
    return share * ratio / (share * ratio + 1 - share)


def _log_beta_mixture(stratum: EventCount, log_ratio: float) -> float:
    """ln of B(a + S, b + N - S) / (B(a, b) q^S (1 - q)^(N - S))."""
    share, total, canary = stratum
    a, b, others = _PRIOR * share, _PRIOR * (1 - share), total - canary
    log_q, log_p = _log_canary(share, log_ratio)
    mixture = log_beta(a + canary, b + others) - log_beta(a, b)
    return mixture - canary * log_q - others * log_p


def _log_canary(share: float, log_ratio: float) -> tuple[float, float]:
    """ln q and ln(1 - q) without loss of precision at extreme ratios."""
    odds = log(share / (1 - share)) + log_ratio
    shared = max(odds, 0.0)
    total = shared + log(exp(-shared) + exp(odds - shared))
    return odds - total, -total


def log_beta(a: float, b: float) -> float:
    """The logarithm of the beta function."""
    return lgamma(a) + lgamma(b) - lgamma(a + b)


def _lowest(function: Callable[[float], float]) -> float:
    """The argument of the least value of a convex function, by golden sections."""
    golden = 0.6180339887498949
    low, high = -_WIDEST, _WIDEST
    for _ in range(_HALVINGS):
        first, second = high - golden * (high - low), low + golden * (high - low)
        if function(first) <= function(second):
            high = second
        else:
            low = first
    return (low + high) / 2


def _crossing(function: Callable[[float], float], inside: float, outside: float) -> float:
    """The point at which a convex function crosses 0 between a point below it and a point above it."""
    if isinf(function(outside)) or function(outside) <= 0:
        return outside
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        if function(middle) < 0:
            inside = middle
        else:
            outside = middle
    return outside
