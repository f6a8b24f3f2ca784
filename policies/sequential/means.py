"""The confidence sequence of the mean of values in [0, 1], and the reduction of their variance by earlier values."""

from collections.abc import Sequence
from math import log, log1p, sqrt
from typing import NamedTuple

import msgspec


class BoundedMean(msgspec.Struct):
    """A mean of values in [0, 1], one at a time: the predictable plug-in empirical-Bernstein confidence sequence.

    Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", arXiv 2010.09686, theorem 2;
    `predmix_empbern_cs` of their package confseq. The values need not be independent: each has the same mean, given
    those before it.
    """

    alpha: float
    count: int = 0
    total: float = 0.0
    deviations: float = 0.0
    """The sum of the squared differences of each value from the mean up to it."""
    weights: float = 0.0
    weighted: float = 0.0
    penalty: float = 0.0

    def add(self, value: float) -> None:
        """Add a value. Raises ValueError outside of [0, 1]."""
        if not 0 <= value <= 1:
            raise ValueError(f"expected a value from 0 to 1, got {value!r}")
        t, log_term = self.count + 1, log(2 / self.alpha)
        before = (0.5 + self.total) / t  # the estimate of the mean from the values before
        variance = (0.25 + self.deviations) / t
        weight = min(0.5, sqrt(2 * log_term / (variance * t * log(1 + t))))
        self.weights += weight
        self.weighted += weight * value
        self.penalty += (value - before) ** 2 * (-log1p(-weight) - weight)
        self.total += value
        self.deviations += (value - (0.5 + self.total) / (t + 1)) ** 2
        self.count = t

    def interval(self) -> tuple[float, float]:
        """The confidence sequence of the mean."""
        if self.count == 0:
            return 0.0, 1.0
        centre = self.weighted / self.weights
        radius = (log(2 / self.alpha) + self.penalty) / self.weights
        return max(centre - radius, 0.0), min(centre + radius, 1.0)


class Covariate(NamedTuple):
    """What the time before an experiment says about a metric: `y - theta (x - mean)` has the mean of y.

    Deng, Xu, Kohavi and Walker, "Improving the sensitivity of online controlled experiments by utilizing
    pre-experiment data" (CUPED), WSDM 2013. `theta` must come from the time before only: then it does not depend on
    the arms, and the adjusted values are as valid as the values.
    """

    theta: float
    mean: float

    def adjusted(self, value: float, before: float) -> float:
        """The value of a subject, adjusted by its value before."""
        return value - self.theta * (before - self.mean)


def covariate(earlier: Sequence[float], later: Sequence[float]) -> Covariate:
    """The covariate of two periods before the experiment, one pair of values for each subject: cov(x, y) / var(x)."""
    if len(earlier) != len(later):
        raise ValueError("each subject has one value in each period")
    if not earlier:
        return Covariate(0.0, 0.0)
    mean, other = sum(earlier) / len(earlier), sum(later) / len(later)
    variance = sum((x - mean) ** 2 for x in earlier)
    covariance = sum((x - mean) * (y - other) for x, y in zip(earlier, later, strict=True))
    return Covariate(covariance / variance if variance > 0 else 0.0, mean)
