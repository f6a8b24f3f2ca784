"""How long an endpoint takes to begin an answer."""

from math import exp

DECAY = 10.0
"""Seconds after which a measurement counts for 1/e of what it did."""


class PeakEwma:
    """A latency that follows rises at once and falls slowly, and that is forgotten while nothing is measured.

    (Finagle, `PeakEwma` in com.twitter.finagle.loadbalancer, which linkerd made its default: "designed to
    converge quickly when encountering slow endpoints". Weights are by time, not by count, so a quiet
    endpoint's history is worth less than a busy one's.) While requests wait, the silence since the last of
    them was answered counts too: it is the least that those still waiting will have taken, so an endpoint
    that stalls looks slow at once and not when it ends.

    Each `asked` is followed by one of `answered` and `unanswered`.
    """

    __slots__ = ("_at", "_silent_since", "_value", "_waiting", "measured")

    def __init__(self) -> None:
        self.measured = False
        self._value = 0.0
        self._at = 0.0
        self._waiting = 0
        self._silent_since = 0.0

    def asked(self, now: float) -> None:
        """A request went to it."""
        if not self._waiting:
            self._silent_since = now
        self._waiting += 1

    def answered(self, seconds: float, now: float) -> None:
        """Its answer began after that long."""
        self._waiting -= 1
        self._silent_since = now
        self._observe(seconds, now)

    def unanswered(self, seconds: float, now: float) -> None:
        """It ended without an answer after that long. A quick failure must not make it look quick."""
        self._waiting -= 1
        self._silent_since = now
        if seconds > self.value(now):
            self._observe(seconds, now)

    def value(self, now: float) -> float:
        """Seconds. One that looked slow is asked no more, so only forgetting lets it show that it recovered."""
        remembered = self._value * exp(min(0.0, self._at - now) / DECAY)
        return max(remembered, now - self._silent_since) if self._waiting else remembered

    def _observe(self, seconds: float, now: float) -> None:
        if seconds < self._value:
            kept = exp(min(0.0, self._at - now) / DECAY)
            seconds += (self._value - seconds) * kept
        self._value = seconds
        self._at = now
        self.measured = True
