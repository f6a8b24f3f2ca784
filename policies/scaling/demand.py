"""The demand that replicas must be able to serve: its mean, its recent level and a margin.

With demand Q in mean, the number of simultaneous requests of independent clients varies by about √Q, so the capacity
Q + β√Q holds the share of late requests constant at every size: square-root staffing (Halfin and Whitt, "Heavy-Traffic
Limits for Queues with Many Exponential Servers", Operations Research 29, 1981). Real clients are burstier than theirs,
so β is not computed but adapted: each late request raises it, each punctual one lowers it, in the ratio at which it
rests while the share of late requests meets the objective (Robbins and Monro, "A Stochastic Approximation Method",
Annals of Mathematical Statistics 22, 1951). The margin β√Q has at most `MOST` standard deviations of the demand, those
of independent clients or the measured ones: a few large clients make a large pool vary by far more than √Q. A burst
that the mean has not followed yet counts by its recent level.
"""

from math import exp, sqrt

MEAN = 60.0
"""Seconds of the mean's memory."""
RECENT = 10.0
"""Seconds of the recent level's memory."""
GAIN = 0.02
"""The change of the margin for one late request."""
FIRST = 2.0
"""The margin before any request was measured."""
SPREAD = 1800.0
"""Seconds of the variance's memory."""
LEAST, MOST = -2.0, 8.0
"""Bounds of the margin in standard deviations, so that a long calm or an outage is forgotten soon."""


class Demand:
    """The measured demand of one pool, in simultaneous requests."""

    __slots__ = ("_late", "_mean", "_recent", "_variance", "margin")

    def __init__(self, late: float, margin: float = FIRST) -> None:
        self._late = late
        self._mean: float | None = None
        self._recent = 0.0
        self._variance = 0.0
        self.margin = margin

    @property
    def required(self) -> float:
        """The simultaneous requests that the pool should have places for."""
        mean = self._mean or 0.0
        return max(mean + self.margin * sqrt(mean), self._recent, 0.0)

    @property
    def largest_margin(self) -> float:
        """The upper bound of the margin, in square roots of the mean."""
        return MOST * max(1.0, sqrt(self._variance / max(self._mean or 0.0, 1.0)))

    @property
    def caution(self) -> float:
        """The share of `hold` that the objective needs: a quarter at the least margin, all of it from `FIRST` on."""
        return min(2 ** ((self.margin - FIRST) / 2), 1.0)

    def observe(self, demand: float, seconds: float) -> None:
        """Add the mean demand of an interval. The clock may stand still; it does not run backwards."""
        if self._mean is None:
            self._mean = self._recent = demand
            return
        self._mean += (1 - exp(-seconds / MEAN)) * (demand - self._mean)
        self._recent += (1 - exp(-seconds / RECENT)) * (demand - self._recent)
        self._variance += (1 - exp(-seconds / SPREAD)) * ((demand - self._mean) ** 2 - self._variance)

    def adapt(self, begun: int, late: int) -> None:
        """Adapt the margin to the requests that left the queue."""
        change = GAIN * (late - self._late * begun)
        self.margin = min(max(self.margin + change, LEAST), self.largest_margin)
