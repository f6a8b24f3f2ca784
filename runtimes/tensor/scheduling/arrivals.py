"""Expected arrivals: the number of callers, and the gaps between their requests."""

from __future__ import annotations

_LONGER, _SHORTER = 1.08, 1 / 1.125
"""Changes of the estimate by a longer and a shorter gap: it converges to the gap that two of five are below. A mean
would count pauses between bursts, and a batch waits for gaps within a burst."""
_WINDOW = 64
"""The number of arrivals after which a peak becomes the previous peak; after as many again it is discarded."""


class Arrivals:
    """Estimates the number of callers. A caller sends its next request after its answer, so the number of callers is
    the recent maximum of requests in flight."""

    __slots__ = ("_count", "_peak", "_previous", "gap", "last")

    def __init__(self) -> None:
        self.gap = 0.0
        """Typical seconds between two arrivals."""
        self.last = float("-inf")
        self._count = 0
        self._peak = 0
        self._previous = 0

    def arrived(self, now: float, inside: int) -> None:
        """Record an arrival; the count of requests in flight includes it."""
        since = now - self.last
        if self.gap:
            self.gap *= _LONGER if since > self.gap else _SHORTER
        elif self._count:
            self.gap = since
        self.last = now
        self._count += 1
        if self._count > _WINDOW:
            self._count, self._previous, self._peak = 1, self._peak, 0
        self._peak = max(self._peak, inside)

    def expects(self, inside: int) -> bool:
        """Whether a known caller has no request in flight."""
        return inside < max(self._peak, self._previous)
