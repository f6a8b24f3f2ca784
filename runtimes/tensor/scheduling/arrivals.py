"""Expected arrivals: the number of callers, and the gaps between their requests."""

from __future__ import annotations

_LONGER, _SHORTER = 1.08, 1 / 1.125
"""Changes of the estimate by a longer and a shorter gap: it settles where two of five are shorter. A mean would count
pauses between bursts, and a batch waits for gaps within a burst."""
_WINDOW = 64
"""Arrivals after which a peak is the previous one, and twice that until it is forgotten."""


class Arrivals:
    """Callers that wait for their answers come back after them; so the most that were ever inside at a time, of
    late, is how many there are."""

    __slots__ = ("_count", "_peak", "_previous", "gap", "last")

    def __init__(self) -> None:
        self.gap = 0.0
        """Seconds between two arrivals, typically."""
        self.last = float("-inf")
        self._count = 0
        self._peak = 0
        self._previous = 0

    def arrived(self, now: float, inside: int) -> None:
        """One came; with it so many wait or are computed."""
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
