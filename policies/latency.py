"""How long an endpoint takes to begin an answer."""

from math import exp

DECAY = 10.0
"""Seconds after which a measurement counts for 1/e of what it did."""


class PeakEwma:
    """A latency that follows rises at once and falls slowly, and that is forgotten while nothing is measured.

    (Finagle, `PeakEwma` in com.twitter.finagle.loadbalancer, which linkerd made its default: "designed to
    converge quickly when encountering slow endpoints". Weights are by time, not by count, so a quiet
    endpoint's history is worth less than a busy one's.)
    """

    __slots__ = ("_at", "_value", "measured")

    def __init__(self) -> None:
        self.measured = False
        self._value = 0.0
        self._at = 0.0

    def observe(self, seconds: float, now: float) -> None:
        """An answer began after that long."""
        value = self._value
        if seconds >= value or not self.measured:
            self._value = seconds
        else:
            kept = exp(min(0.0, self._at - now) / DECAY)
            self._value = seconds + (value - seconds) * kept
        self.measured = True
        self._at = now

    def failed(self, seconds: float, now: float) -> None:
        """It failed after that long. A quick failure must not make it look quick."""
        if seconds > self.value(now):
            self.observe(seconds, now)

    def value(self, now: float) -> float:
        """Seconds. An endpoint that looked slow is not asked, so only forgetting lets it show that it recovered."""
        return self._value * exp(min(0.0, self._at - now) / DECAY)
