"""The confidence sequence of a mean of values with a wide range, such as tokens and costs, from sums that add up."""

from math import log, sqrt

import msgspec

_GROWTH = 2.0
_POWER = 1.4
_ZETA = 3.1055472779775806
"""Riemann's zeta function at 1.4."""
_K1 = (_GROWTH**0.25 + _GROWTH**-0.25) / sqrt(2)
_K2 = (sqrt(_GROWTH) + 1) / 2


class WideSum(msgspec.Struct):
    """Values in [0, `most`]: larger ones count as `most`. The sums of several processes add up.

    `squares` sums the squared differences of each value from the mean of those before it in its process, which is
    known before the value comes, as theorem 4 of the source requires.
    """

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, value: float, most: float, expected: float | None = None) -> None:
        """Add a value. `expected` is an estimate from values before it; the mean of these sums when absent."""
        value = min(max(value, 0.0), most)
        if expected is None:
            expected = self.total / self.count if self.count else 0.0
        self.count += 1
        self.total += value
        self.squares += (value - expected) ** 2

    def merge(self, other: "WideSum") -> None:
        """Add the sums of another process."""
        self.count += other.count
        self.total += other.total
        self.squares += other.squares

    def interval(self, alpha: float, most: float) -> tuple[float, float]:
        """The confidence sequence of the mean of the bounded values, by the empirical Bernstein bound with
        stitching. Howard, Ramdas, McAuliffe and Sekhon, "Time-uniform, nonparametric, nonasymptotic confidence
        sequences", arXiv 1810.08240, theorems 1 and 4.
        """
        if not self.count:
            return 0.0, most
        mean, radius = self.total / self.count, stitched_bound(self.squares, alpha / 2, most) / self.count
        return max(mean - radius, 0.0), min(mean + radius, most)


def stitched_bound(variance: float, alpha: float, scale: float, least: float | None = None) -> float:
    """A bound that a sum with this intrinsic variance, sub-exponential with `scale`, ever exceeds with a probability
    of at most alpha. `least`: the variance from which on it is tight; the square of the scale by default."""
    least = scale * scale if least is None else least
    variance = max(variance, least)
    ell = _POWER * log(log(_GROWTH * variance / least)) + log(_ZETA / (alpha * log(_GROWTH) ** _POWER))
    linear = _K2 * scale * ell
    return sqrt(_K1 * _K1 * variance * ell + linear * linear) + linear
