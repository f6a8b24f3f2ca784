"""One timer for all deadlines.

A connection's deadline moves several times a request. Writing a float and looking at all of them a few
times a second costs less than one `call_later` a move, and the limits are seconds long.
"""

import asyncio
import math
from collections.abc import Set
from typing import Protocol

NEVER = math.inf


class Expiring(Protocol):
    """Something with an end: `deadline` in loop time, `NEVER` for none."""

    deadline: float

    def expire(self) -> None:
        """The deadline has passed."""


class Sweeper:
    """Expires the members of a live set, at most `interval` seconds late. Idle while the set is empty."""

    __slots__ = ("_handle", "_interval", "_loop", "_members")

    def __init__(self, loop: asyncio.AbstractEventLoop, members: Set[Expiring], interval: float) -> None:
        self._loop = loop
        self._members = members
        self._interval = interval
        self._handle: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """Call after adding a member."""
        if self._handle is None:
            self._handle = self._loop.call_later(self._interval, self._sweep)

    def _sweep(self) -> None:
        self._handle = None
        now = self._loop.time()
        for member in [m for m in self._members if m.deadline <= now]:
            member.deadline = NEVER
            member.expire()
        if self._members:
            self.wake()

    def close(self) -> None:
        """Stop. Members are left as they are."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
