"""One timer for all deadlines of a loop.

The deadline of a connection changes several times in each request. Storing a float and checking all deadlines a few
times a second costs less than one `call_later` for each change, and the limits are seconds long. One timer serves
every server and client of the loop: with separate timers, a hundred upstreams would keep an idle gateway awake.
"""

import asyncio
import math
from collections.abc import Set
from operator import attrgetter
from typing import Protocol
from weakref import WeakKeyDictionary

NEVER = math.inf
INTERVAL = 0.1
"""Seconds between two checks."""
CALM = 0.5
"""The same while no deadline is near and none changes."""
EARLY = 0.002
"""How long before its time a timer may fire: uvloop counts whole milliseconds."""


class Expiring(Protocol):
    """An object with a `deadline` in loop time; `NEVER` for no deadline."""

    deadline: float

    @property
    def rests(self) -> bool:
        """Whether its deadline comes nearer only after a call of `stir`, or by seconds more than `CALM`."""
        ...

    def expire(self) -> None:
        """Handle the end of the deadline."""


class Sweeper:
    """Expires the members of live sets, the earliest of a set first, at most `INTERVAL` and `EARLY` seconds late.

    Looks seldom while all members rest and no deadline is near. The looks have fixed times, so that the exchanges of
    one server do not shift those of another. Idle while all sets are empty.
    """

    __slots__ = ("_handle", "is_calm", "_loop", "_sets")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._sets: dict[int, Set[Expiring]] = {}
        self._handle: asyncio.TimerHandle | None = None
        self.is_calm = False

    def watch(self, members: Set[Expiring]) -> None:
        """Check a set until it is empty. Call this method whenever a member was added."""
        self._sets[id(members)] = members
        if self._handle is None:
            self._look_after(INTERVAL)
        self.stir()

    def stir(self) -> None:
        """Check often again: a deadline has come nearer, as of a connection that rested and now has a request."""
        if self.is_calm and self._handle is not None:
            self.is_calm = False
            self._handle.cancel()
            self._look_after(INTERVAL)

    def _sweep(self) -> None:
        now = self._loop.time()
        for members in tuple(self._sets.values()):
            for member in sorted((m for m in members if m.deadline <= now), key=attrgetter("deadline")):
                member.deadline = NEVER
                member.expire()
        self._sets = {key: members for key, members in self._sets.items() if members}
        self._handle = None
        if self._sets:
            far = now + 2 * CALM
            self.is_calm = all(m.rests and m.deadline > far for members in self._sets.values() for m in members)
            self._look_after(CALM if self.is_calm else INTERVAL)

    def _look_after(self, period: float) -> None:
        """Look at the next multiple of a period: all calm loops of a process then wake it once.

        A timer that fired early has done the look of the multiple just ahead, so the next look is one period later.
        """
        now = self._loop.time()
        then = (now // period + 1) * period
        self._handle = self._loop.call_at(then if then - now > EARLY else then + period, self._sweep)


_sweepers: WeakKeyDictionary[asyncio.AbstractEventLoop, Sweeper] = WeakKeyDictionary()


def sweeper(loop: asyncio.AbstractEventLoop) -> Sweeper:
    """The sweeper of a loop, created on first use."""
    current = _sweepers.get(loop)
    if current is None:
        current = _sweepers[loop] = Sweeper(loop)
    return current
