"""How many lines of batches may run beside live requests.

Two bounds: the places that live requests leave in their pools, less a reserve, and a limit that rises while lines
succeed and is halved when the servers are crowded (additive increase, multiplicative decrease: Chiu and Jain, 1989).
"""

from math import floor
from typing import NamedTuple

CALM = 0.25
"""Seconds after a decrease in which further signs of the same crowd have no effect."""
FIRST = 4.0


class PoolLoad(NamedTuple):
    """The load of the pools of a model, in this process."""

    capacity: int
    """Places at endpoints that are healthy."""
    in_flight: int
    """Requests in flight, lines of batches included."""
    waiting: int
    """Live requests in the queues."""


class Admission:
    """The limit of lines of one set of pools."""

    __slots__ = ("_calm_until", "_rises_fast", "limit")

    def __init__(self) -> None:
        self.limit = FIRST
        self._rises_fast = True
        self._calm_until = 0.0

    def room(self, load: PoolLoad, own: int, most: int, reserve: float, now: float) -> int:
        """How many more lines may begin while `own` lines run."""
        if load.waiting:
            self.crowded(now)
            return 0
        live = max(0, load.in_flight - own)
        places = max(1 if not live and load.capacity else 0, floor(load.capacity * (1.0 - reserve)) - live)
        return max(0, min(places, floor(self.limit), most) - own)

    def succeeded(self, most: int) -> None:
        """A line has been answered."""
        step = 1.0 if self._rises_fast else 1.0 / self.limit
        self.limit = min(float(most), self.limit + step)

    def crowded(self, now: float) -> None:
        """A live request waits, or a server is full."""
        if now < self._calm_until:
            return
        self._calm_until = now + CALM
        self._rises_fast = False
        self.limit = max(1.0, self.limit / 2.0)
