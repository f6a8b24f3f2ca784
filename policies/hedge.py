"""The delay before a hedge.

(Dean and Barroso, "The Tail at Scale", CACM 56(2), 2013: a second request after the 95th percentile costs a
twentieth more load and takes most of the tail away.)
"""

from typing import Protocol

from config.schema.units import parse_duration

WINDOW = 512
LEAST = 20
EVERY = 16


class Patience(Protocol):
    """The time to wait for an answer to begin before a hedge."""

    def seconds(self, *, stream: bool) -> float | None:
        """The delay in seconds; None before enough measurements."""
        ...

    def observe(self, seconds: float, *, stream: bool) -> None:
        """Record that an answer began, or was abandoned, after `seconds`."""
        ...


class Fixed:
    """A configured delay."""

    __slots__ = ("_seconds",)

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def seconds(self, *, stream: bool) -> float | None:
        return self._seconds

    def observe(self, seconds: float, *, stream: bool) -> None:
        """Ignored."""


class MeasuredDelay:
    """The delay within which a share of recent answers began.

    A stream begins with its first token and a whole answer with its last, so each has its own measurements.
    """

    __slots__ = ("_streams", "_wholes")

    def __init__(self, share: float) -> None:
        self._streams = Quantile(share)
        self._wholes = Quantile(share)

    def seconds(self, *, stream: bool) -> float | None:
        return (self._streams if stream else self._wholes).value

    def observe(self, seconds: float, *, stream: bool) -> None:
        (self._streams if stream else self._wholes).observe(seconds)


class Quantile:
    """A quantile of the last 512 measurements; None before there are twenty. Computed at every sixteenth."""

    __slots__ = ("_count", "_recent", "_share", "value")

    def __init__(self, share: float) -> None:
        self.value: float | None = None
        self._share = share
        self._recent: list[float] = []
        self._count = 0

    def observe(self, seconds: float) -> None:
        if len(self._recent) < WINDOW:
            self._recent.append(seconds)
        else:
            self._recent[self._count % WINDOW] = seconds
        self._count += 1
        if self._count == LEAST or (self._count > LEAST and self._count % EVERY == 0):
            ordered = sorted(self._recent)
            self.value = ordered[min(int(self._share * len(ordered)), len(ordered) - 1)]


def patience(after: str) -> Patience:
    """The delay for a configured ``p95`` or ``200ms``."""
    return MeasuredDelay(float(after[1:]) / 100) if after.startswith("p") else Fixed(parse_duration(after))
