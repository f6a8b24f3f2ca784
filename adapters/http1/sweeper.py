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


class Expiring(Protocol):
    """An object with a `deadline` in loop time; `NEVER` for no deadline."""

    deadline: float

    def expire(self) -> None:
        """Handle the end of the deadline."""


class Sweeper:
    """Expires the members of live sets, at most `INTERVAL` seconds late, the earliest of a set first. Idle while all of
    them are empty."""

    __slots__ = ("_handle", "_loop", "_sets")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._sets: dict[int, Set[Expiring]] = {}
        self._handle: asyncio.TimerHandle | None = None

    def watch(self, members: Set[Expiring]) -> None:
        """Check a set until it is empty. Call this method whenever a member was added."""
        self._sets[id(members)] = members
        if self._handle is None:
            self._handle = self._loop.call_later(INTERVAL, self._sweep)

    def _sweep(self) -> None:
        now = self._loop.time()
        for members in tuple(self._sets.values()):
            for member in sorted((m for m in members if m.deadline <= now), key=attrgetter("deadline")):
                member.deadline = NEVER
                member.expire()
        self._sets = {key: members for key, members in self._sets.items() if members}
        self._handle = self._loop.call_later(INTERVAL, self._sweep) if self._sets else None


_sweepers: WeakKeyDictionary[asyncio.AbstractEventLoop, Sweeper] = WeakKeyDictionary()


def sweeper(loop: asyncio.AbstractEventLoop) -> Sweeper:
    """The sweeper of a loop, created on first use."""
    current = _sweepers.get(loop)
    if current is None:
        current = _sweepers[loop] = Sweeper(loop)
    return current
