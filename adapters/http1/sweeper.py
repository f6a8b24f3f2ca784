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


class Expiring(Protocol):
    """An object with a `deadline` in loop time; `NEVER` for no deadline."""

    deadline: float

    def expire(self) -> None:
        """Handle the end of the deadline."""


class Sweeper:
    """Expires the members of live sets, the earliest of a set first, at most `INTERVAL` seconds late.

    While no deadline is near and none changes, the next change is seen up to `CALM` seconds late, unless `stir` is
    called.
    Idle while all sets are empty.
    """

    __slots__ = ("_handle", "_is_calm", "_loop", "_seen", "_sets")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._sets: dict[int, Set[Expiring]] = {}
        self._handle: asyncio.TimerHandle | None = None
        self._is_calm = False
        self._seen: list[float] = []
        """All deadlines at the last check."""

    def watch(self, members: Set[Expiring]) -> None:
        """Check a set until it is empty. Call this method whenever a member was added."""
        self._sets[id(members)] = members
        if self._handle is None:
            self._handle = self._loop.call_later(INTERVAL, self._sweep)
        self.stir()

    def stir(self) -> None:
        """Check often again: a deadline has come nearer, as of a connection that rested and now has a request."""
        if self._is_calm and self._handle is not None:
            self._is_calm = False
            self._handle.cancel()
            self._handle = self._loop.call_later(INTERVAL, self._sweep)

    def _sweep(self) -> None:
        now = self._loop.time()
        for members in tuple(self._sets.values()):
            for member in sorted((m for m in members if m.deadline <= now), key=attrgetter("deadline")):
                member.deadline = NEVER
                member.expire()
        self._sets = {key: members for key, members in self._sets.items() if members}
        self._handle = None
        if self._sets:
            deadlines = [member.deadline for members in self._sets.values() for member in members]
            self._is_calm, self._seen = deadlines == self._seen and min(deadlines) > now + 2 * CALM, deadlines
            # All calm timers of the loop end at the same times, so that they wake it once.
            then = (now // CALM + 1) * CALM if self._is_calm else now + INTERVAL
            if then <= now:  # the quotient was rounded down
                then += CALM
            self._handle = self._loop.call_at(then, self._sweep)


_sweepers: WeakKeyDictionary[asyncio.AbstractEventLoop, Sweeper] = WeakKeyDictionary()


def sweeper(loop: asyncio.AbstractEventLoop) -> Sweeper:
    """The sweeper of a loop, created on first use."""
    current = _sweepers.get(loop)
    if current is None:
        current = _sweepers[loop] = Sweeper(loop)
    return current
