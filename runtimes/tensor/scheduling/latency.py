"""Measured time of a batch by its size."""

from __future__ import annotations

from bisect import bisect_left

_WEIGHT = 0.1
"""The weight of a new measurement, after enough for a mean."""
_EXACT = 32
"""The largest size with its own measurement; above, sizes with the same five leading bits share a measurement."""


def _size_class(rows: int) -> int:
    if rows <= _EXACT:
        return rows
    shift = rows.bit_length() - 5
    return rows >> shift << shift


class LatencyCurve:
    """Seconds by rows: a moving mean of each measured size, with linear interpolation."""

    __slots__ = ("_counts", "_seconds", "_sizes")

    def __init__(self) -> None:
        self._sizes: list[int] = []
        self._seconds: list[float] = []
        self._counts: list[int] = []

    def observe(self, rows: int, seconds: float) -> None:
        size = _size_class(rows)
        at = bisect_left(self._sizes, size)
        if at == len(self._sizes) or self._sizes[at] != size:
            self._sizes.insert(at, size)
            self._seconds.insert(at, seconds)
            self._counts.insert(at, 1)
            return
        count = self._counts[at] = self._counts[at] + 1
        self._seconds[at] += (seconds - self._seconds[at]) * max(_WEIGHT, 1 / count)

    def predict(self, rows: int) -> float:
        """Seconds for a batch; 0 without measurements. Beyond the measured sizes the last line continues."""
        sizes, seconds = self._sizes, self._seconds
        if len(sizes) < 2:
            return seconds[0] if seconds else 0.0
        size = _size_class(rows)
        at = bisect_left(sizes, size)
        if at < len(sizes) and sizes[at] == size:
            return seconds[at]
        at = min(max(at, 1), len(sizes) - 1)
        slope = (seconds[at] - seconds[at - 1]) / (sizes[at] - sizes[at - 1])
        guess = seconds[at] + slope * (rows - sizes[at])
        if sizes[0] < rows < sizes[-1]:
            return guess
        # A noisy slope must not make a larger batch faster than a smaller one, or a smaller one free.
        return max(guess, seconds[-1]) if rows > sizes[-1] else min(max(guess, 0.0), seconds[0])

    def saving(self, rows: int) -> float:
        """Seconds of the device that one more row saves if it joins a batch of this size instead of a separate
        batch."""
        return max(0.0, self.predict(rows) + self.predict(1) - self.predict(rows + 1))
