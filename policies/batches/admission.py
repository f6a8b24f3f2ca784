"""How many lines of batches may run beside live requests.

Two bounds: the places that live requests leave in their pools, less a reserve, and a limit that rises while lines
succeed and is halved when the servers are crowded (additive increase, multiplicative decrease: Chiu and Jain, 1989).

A server of tensors answers in the order of arrival, so lines that wait in its queue delay live requests. Its limit
rises and falls so that about QUEUED lines wait there: by how much longer an answer takes than the shortest one (Brakmo
and Peterson, "TCP Vegas", 1995). The bundled LLM engine has priorities, and gains from many lines at once.
"""

from math import floor, inf
from typing import NamedTuple

CALM = 0.25
"""Seconds after a decrease in which further signs of the same crowd have no effect."""
FIRST = 4.0
QUEUED = (0.5, 1.0)
"""Lines in a server's queue below which the limit rises, and above which it falls."""
WINDOW = 30.0
"""Seconds for which the shortest answer counts, and at most as long again."""
SMOOTHING = 0.2


class PoolLoad(NamedTuple):
    """The load of the pools of a model, in this process."""

    capacity: int
    """Places at endpoints that are healthy."""
    in_flight: int
    """Requests in flight, lines of batches included."""
    waiting: int
    """Live requests in the queues."""


class Admission:
    """The limit of lines of one set of pools. `in_order`: their servers answer in the order of arrival."""

    __slots__ = ("_calm_until", "_ends", "_in_order", "_mean", "_rises_fast", "_shortest", "limit")

    def __init__(self, *, in_order: bool = False) -> None:
        self.limit = 1.0 if in_order else FIRST
        self._in_order = in_order
        self._mean = 0.0
        self._shortest = [inf, inf]  # of the window before, and of this one
        self._ends = -inf
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

    def reason(self, load: PoolLoad, own: int, most: int, reserve: float) -> str:
        """Why no more lines begin while `own` lines run, for operators."""
        live = max(0, load.in_flight - own)
        if load.waiting:
            return f"{load.waiting} live requests wait in the queue"
        if not load.capacity:
            return "no endpoint is healthy, or every breaker is open"
        if floor(load.capacity * (1.0 - reserve)) - live <= own:
            return f"of {load.capacity} places, live requests use {live}, lines {own}, and {reserve:.0%} are reserved"
        if floor(self.limit) <= own:
            return f"{own} lines run, and the limit that rises while lines succeed is {floor(self.limit)}"
        if own >= most:
            return f"{own} lines run, which is `batches.concurrency`"
        return "they begin at the next look"

    def answered(self, own: int, seconds: float, most: int, now: float) -> None:
        """A line has been answered after `seconds`, while `own` lines ran."""
        if not self._in_order:
            self.succeeded(most)
            return
        if now >= self._ends:
            self._shortest, self._ends = [self._shortest[1], inf], now + WINDOW
        self._shortest[1] = min(self._shortest[1], seconds)
        self._mean += (SMOOTHING if self._mean else 1.0) * (seconds - self._mean)
        queued = own * (1.0 - min(self._shortest) / max(self._mean, 1e-9))
        if queued > QUEUED[1]:
            self._rises_fast = False
            self.limit = max(1.0, self.limit - 1.0 / self.limit)
        elif queued < QUEUED[0] and own + 1.0 >= self.limit:
            self.succeeded(most)

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
