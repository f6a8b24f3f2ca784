"""The measured time of an endpoint to the first chunk of an answer."""

from math import exp

DECAY = 10.0
"""Seconds after which the weight of a measurement falls to 1/e."""


class PeakEwma:
    """A latency estimate that rises at once, falls slowly, and decays without measurements.

    (Finagle, `PeakEwma` in com.twitter.finagle.loadbalancer, which linkerd made its default: "designed to
    converge quickly when encountering slow endpoints". Weights are by time, not by count, so a quiet
    endpoint's history is worth less than a busy one's.) While requests wait, the
    time since the last answer counts too, as a lower bound of their latency: an endpoint that stalls looks slow at
    once, not only when it answers.

    Each `sent` is followed by one of `answered` and `unanswered`.
    """

    __slots__ = ("_at", "_silent_since", "_value", "_waiting", "measured")

    def __init__(self) -> None:
        self.measured = False
        self._value = 0.0
        self._at = 0.0
        self._waiting = 0
        self._silent_since = 0.0

    def sent(self, now: float) -> None:
        """Record a request to the endpoint."""
        if not self._waiting:
            self._silent_since = now
        self._waiting += 1

    def answered(self, seconds: float, now: float) -> None:
        """Record an answer that began after `seconds`."""
        self._waiting -= 1
        self._silent_since = now
        if seconds < self._value:
            seconds += (self._value - seconds) * exp(min(0.0, self._at - now) / DECAY)
        self._value = seconds
        self._at = now
        self.measured = True

    def unanswered(self, seconds: float, now: float) -> None:
        """Record the end of a request without an answer after `seconds`. A fast failure must not lower the estimate."""
        self._waiting -= 1
        self._silent_since = now
        if seconds > self.value(now):  # and so above the remembered value
            self._value = seconds
            self._at = now
            self.measured = True

    def value(self, now: float) -> float:
        """The estimate in seconds. A slow endpoint gets no requests, so only the decay lets it recover."""
        remembered = self._value * exp(min(0.0, self._at - now) / DECAY)
        return max(remembered, now - self._silent_since) if self._waiting else remembered
