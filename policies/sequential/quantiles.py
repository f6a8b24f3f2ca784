"""Latencies counted in logarithmic bins: the confidence sequence of a quantile, and the test of two arms' quantiles."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from math import ceil, inf, log

from policies.sequential.event_ratio import log_beta

GROWTH = 1.05
"""The ratio of the edges of a bin: a quantile is 5 % precise at best."""
_PER_LOG = 1 / log(GROWTH)
_LEAST = 1e-6
_PRIOR = 20.0

Bins = Mapping[int, int]
"""Counts by the number of the bin. Bin `i` has the values in (GROWTH**(i-1), GROWTH**i]."""


def bin_of(seconds: float) -> int:
    """The number of the bin of a value. Values below a microsecond count as a microsecond."""
    return ceil(log(seconds if seconds > _LEAST else _LEAST) * _PER_LOG)


def merged(counts: Iterable[Bins]) -> Counter[int]:
    """The sum of several counts, such as those of several processes."""
    total = Counter[int]()
    for each in counts:
        total.update(each)
    return total


def quantile(bins: Bins, p: float) -> float:
    """The upper edge of the bin of the p-quantile; infinite without values."""
    return _upper_edge(bins, ceil(p * sum(bins.values())))


def quantile_interval(bins: Bins, p: float, alpha: float, weight: float = _PRIOR) -> tuple[float, float]:
    """The confidence sequence of the p-quantile of a steady distribution, rounded outward to the edges of bins.

    With `t` values, `S` of which are at most x, x is in the interval while
    ``B(cp + S, c(1-p) + t-S) / (B(cp, c(1-p)) p^S (1-p)^(t-S)) < 1/alpha``: the beta-binomial mixture (arXiv
    1810.08240) of whether a value is below its quantile, as Howard and Ramdas reduce quantiles to, arXiv 1906.09712.
    """
    total = sum(bins.values())

    def rejected(below: int) -> bool:
        return _log_mixture(below, total, p, weight) + log(alpha) >= 0

    middle = round(p * total)
    least = _last(lambda below: not rejected(below), middle, 0)
    most = _last(lambda below: not rejected(below), middle, total)
    # The quantile is at least the `least`-th value in order, and at most the value after the `most`-th.
    low = 0.0 if least == 0 else _upper_edge(bins, least) / GROWTH
    return low, _upper_edge(bins, most + 1)


def log_quantile_difference(first: Bins, second: Bins, p: float, weight: float = _PRIOR) -> float:
    """The logarithm of an e-value against "both have the same p-quantile", of two steady distributions.

    The least, over all x, of ``M1(x) M2(x)``, each the beta-binomial mixture of whether a value is below x: at the
    quantile both are martingales. (Howard and Ramdas, arXiv 1906.09712; `QuantileABTest` of their package confseq.)
    Within a bin the values may lie anywhere, so each mixture is the least that they allow.
    """
    edges = sorted({*first, *second})
    if not first or not second:
        return 0.0
    least, below = inf, [0, 0]
    arms = [(bins, sum(bins.values())) for bins in (first, second)]
    for number in edges:
        log_e = 0.0
        for arm, (bins, total) in enumerate(arms):
            upper = below[arm] + bins.get(number, 0)
            nearest = min(max(ceil(p * (total - 1)), below[arm]), upper)
            log_e += _log_mixture(nearest, total, p, weight)
            below[arm] = upper
        least = min(least, log_e)
    return least


def _log_mixture(below: int, total: int, p: float, weight: float) -> float:
    """ln of ``B(cp + S, c(1-p) + t-S) / (B(cp, c(1-p)) p^S (1-p)^(t-S))``."""
    a, b = weight * p, weight * (1 - p)
    return log_beta(a + below, b + total - below) - log_beta(a, b) - below * log(p) - (total - below) * log(1 - p)


def _last(accepts: Callable[[int], bool], inside: int, outside: int) -> int:
    """The accepted integer nearest to `outside`, where all integers between `inside` and that one are accepted."""
    if accepts(outside):
        return outside
    while abs(outside - inside) > 1:
        middle = (inside + outside) // 2
        if accepts(middle):
            inside = middle
        else:
            outside = middle
    return inside


def _upper_edge(bins: Bins, rank: int) -> float:
    """The upper edge of the bin of the rank-th value in order; infinite beyond the last one."""
    seen = 0
    for number in sorted(bins):
        seen += bins[number]
        if seen >= rank:
            return float(GROWTH**number)
    return inf
