"""The load that a server reports, and the measured time of an endpoint to the first chunk of an answer."""

from math import exp

FULL = 0.8
"""Share of a KV cache in use above which a new request evicts another or waits for pages."""
CROWDED = 4.0
"""Factor by which an endpoint with a full cache counts as more loaded."""


class Signal:
    """The last report of one server. Its weight decreases with its age.

    A server's running and waiting requests include this gateway's own requests, which the gateway counts itself. The
    rest is the load of other clients. Waiting requests count twice, because the next request waits behind them.
    """

    __slots__ = ("_at", "_crowding", "_half_life", "_others", "adapters", "seen")

    def __init__(self) -> None:
        self.seen = False
        self.adapters: frozenset[str] = frozenset()
        """The LoRA adapters that the server has loaded."""
        self._half_life = 1.0
        self._at = 0.0
        self._others = 0.0
        self._crowding = 0.0

    def report(
        self,
        *,
        running: float,
        waiting: float,
        cache: float,
        own: int,
        half_life: float,
        now: float,
        adapters: frozenset[str] = frozenset(),
    ) -> None:
        """Store a report: running and waiting requests (`own` are this gateway's) and the used share of the cache."""
        self.seen = True
        self.adapters = adapters
        self._at = now
        self._half_life = half_life
        self._others = max(0.0, running + waiting - own) + waiting
        self._crowding = CROWDED * min(1.0, max(0.0, (cache - FULL) / (1.0 - FULL)))

    def trust(self, now: float) -> float:
        """The weight of the report: 1 when new, halved after each half-life, 0 without a report."""
        return 2.0 ** min(0.0, (self._at - now) / self._half_life) if self.seen else 0.0

    def load(self, own: int, trust: float) -> float:
        """Estimated requests at the server, including `own` of this gateway, at a given weight of the report."""
        return (own + trust * self._others) * (1.0 + trust * self._crowding)

    def age(self, now: float) -> float | None:
        """Seconds since the last report; None before the first."""
        return now - self._at if self.seen else None


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
