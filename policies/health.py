"""Slow start, the panic threshold below which health is ignored, and the ejection of an endpoint that fails more often
than its peers.
"""

from collections.abc import Sequence
from math import exp, inf
from typing import Protocol

from policies.breaker import LONGEST, Breaker

COLDEST = 0.1
"""Share of its weight that an endpoint starts with: enough to warm it, too little to overload it."""


def ramp(age: float, window: float) -> float:
    """Share of its weight for an endpoint that joined or recovered `age` seconds ago, with a slow start of `window`
    seconds.

    A straight line from 0.1 to 1. (Envoy, "Slow start mode", aggression 1.)
    """
    return 1.0 if age >= window else max(COLDEST, age / window)


def panics(healthy: int, endpoints: int, threshold: float) -> bool:
    """Whether fewer than `threshold` (0 … 1) of the endpoints are healthy, so that health is ignored.

    The full traffic would overload the few healthy endpoints, and checks that fail for most endpoints at once may
    be wrong themselves. A threshold of 0 never panics. (Envoy, "Panic threshold".)
    """
    return healthy < threshold * endpoints


WORSE = 2.0
"""The factor by which an outlier's share of failures exceeds its peers': if all fail, none is an outlier."""


class Tally:
    """The recent results of one endpoint's requests. The weight of older results decreases."""

    __slots__ = ("_at", "_failed", "_until", "ended", "times")

    def __init__(self) -> None:
        self.ended = 0.0
        self.times = 1  # the next ejection, in multiples of leave_for
        self._failed = 0.0
        self._at = 0.0
        self._until = -inf

    @property
    def share(self) -> float:
        """The share of failed requests."""
        return self._failed / self.ended if self.ended else 0.0

    def count(self, window: float, now: float, *, failed: bool) -> None:
        decay = exp(min(0.0, self._at - now) / window)
        self._at = now
        self.ended = self.ended * decay + 1
        self._failed = self._failed * decay + failed

    def leave(self, seconds: float, now: float) -> float:
        """Eject the endpoint and reset its tally. Returns the seconds of the ejection."""
        # After twice the last ejection without a new one, the multiple is reset.
        self.times = 1 if now > self._until + 2 * self.times * seconds else min(2 * self.times, LONGEST)
        self._until = now + self.times * seconds
        self.ended = self._failed = 0.0
        return self.times * seconds


class Judged(Protocol):
    """The attributes of an endpoint that ejection uses."""

    @property
    def tally(self) -> Tally: ...
    @property
    def breaker(self) -> Breaker: ...


class Outliers:
    """Ejects endpoints by opening their breakers, which themselves count only consecutive failures.

    An endpoint is evaluated when a request fails. It is ejected after at least `requests` requests if its share of
    failures reaches `failures` and is more than twice the share of its peers. At most `at_most` of the pool is ejected
    at once, at least one endpoint, and never the last.
    """

    def __init__(self, *, failures: float, window: float, requests: int, leave_for: float, at_most: float) -> None:
        self._failures = failures
        self._window = window
        self._requests = requests
        self._leave_for = leave_for
        self._at_most = at_most
        self.peers: Sequence[Judged] = ()
        """All endpoints of the pool."""

    def ended(self, endpoint: Judged, now: float, *, failed: bool) -> bool:
        """Record the end of a request. Returns True if this ejects the endpoint, so that its breaker is open now."""
        tally = endpoint.tally
        tally.count(self._window, now, failed=failed)
        if not failed or tally.ended < self._requests or tally.share < self._failures or endpoint.breaker.is_open:
            return False
        if not self._is_worse(endpoint) or not self._may_leave():
            return False
        endpoint.breaker.trip(tally.leave(self._leave_for, now), now)
        return True

    def _is_worse(self, endpoint: Judged) -> bool:
        """Whether an endpoint fails more than its peers, weighted by their numbers of requests."""
        others = [peer.tally for peer in self.peers if peer is not endpoint]
        ended = sum(tally.ended for tally in others)
        failed = sum(tally.share * tally.ended for tally in others)
        return endpoint.tally.share * ended > WORSE * failed

    def _may_leave(self) -> bool:
        out = sum(peer.breaker.is_open for peer in self.peers)
        most = max(1, int(self._at_most * len(self.peers)))
        return out < most and out + 1 < len(self.peers)
