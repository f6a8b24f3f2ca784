"""Outliers: an endpoint that fails more of its requests than its peers do is left alone for a while."""

from collections.abc import Sequence
from math import exp, inf
from typing import Protocol

from policies.breaker import LONGEST, Breaker

WORSE = 2.0
"""How many times the peers' share of failures makes an outlier: when all fail, none is one."""


class Tally:
    """How one endpoint's requests ended lately; older ones count less and less."""

    __slots__ = ("_at", "_failed", "_until", "ended", "times")

    def __init__(self) -> None:
        self.ended = 0.0
        self.times = 1  # how many times leave_for it is left alone next
        self._failed = 0.0
        self._at = 0.0
        self._until = -inf

    @property
    def share(self) -> float:
        """Of its requests, how many failed."""
        return self._failed / self.ended if self.ended else 0.0

    def count(self, window: float, now: float, *, failed: bool) -> None:
        kept = exp(min(0.0, self._at - now) / window)
        self._at = now
        self.ended = self.ended * kept + 1
        self._failed = self._failed * kept + failed

    def leave(self, seconds: float, now: float) -> float:
        """Begin anew with it later; for how long to leave it alone."""
        # Twice as long as it was left alone, without a new reason, and all is forgiven.
        self.times = 1 if now > self._until + 2 * self.times * seconds else min(2 * self.times, LONGEST)
        self._until = now + self.times * seconds
        self.ended = self._failed = 0.0
        return self.times * seconds


class Judged(Protocol):
    """An endpoint, as far as it is judged."""

    @property
    def tally(self) -> Tally: ...
    @property
    def breaker(self) -> Breaker: ...


class Outliers:
    """Opens breakers. A breaker counts failures in a row; one in three or four never opens it.

    One of a pool's endpoints is judged when it fails: after `requests` of them, when the share that failed
    reaches `failures` and is more than twice the peers'. At most `at_most` of the pool is left alone at once,
    one endpoint at least, and never the last.
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
        """A request there is over; True when that made it an outlier, and its breaker is open now."""
        tally = endpoint.tally
        tally.count(self._window, now, failed=failed)
        if not failed or tally.ended < self._requests or tally.share < self._failures or endpoint.breaker.is_open:
            return False
        if not self._is_worse(endpoint) or not self._may_leave():
            return False
        endpoint.breaker.trip(tally.leave(self._leave_for, now), now)
        return True

    def _is_worse(self, endpoint: Judged) -> bool:
        """Weighed by their requests: a peer that had few says little."""
        others = [peer.tally for peer in self.peers if peer is not endpoint]
        ended = sum(tally.ended for tally in others)
        failed = sum(tally.share * tally.ended for tally in others)
        return endpoint.tally.share * ended > WORSE * failed

    def _may_leave(self) -> bool:
        out = sum(peer.breaker.is_open for peer in self.peers)
        most = max(1, int(self._at_most * len(self.peers)))
        return out < most and out + 1 < len(self.peers)
