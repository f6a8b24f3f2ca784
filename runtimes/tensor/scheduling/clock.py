"""The clock that orders queues and measures latency, one timer for many deadlines, and waits until
nothing runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from math import inf


class Quiet:
    """`idle` returns whether no work runs; each end of work calls `settle`."""

    def __init__(self, idle: Callable[[], bool]) -> None:
        self._idle = idle
        self._waiters: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        while not self._idle():
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def settle(self) -> None:
        if self._waiters and self._idle():
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._waiters.clear()


class Deadlines:
    """Calls `look` at the earliest deadline, but at most once in `interval` seconds, and as late as possible.

    `look` ends the requests that are due at the given time, and returns the time of the next call, infinite for none.
    """

    __slots__ = ("_at", "_clock", "_interval", "_look", "_loop", "_timer")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float],
        look: Callable[[float], float],
        interval: float = 0.005,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._look = look
        self._interval = interval
        self._timer: asyncio.TimerHandle | None = None
        self._at = inf

    def by(self, when: float) -> None:
        """Call `look` at this time at the latest."""
        if when >= self._at:
            return
        when = max(when, self._clock() + self._interval)
        if when >= self._at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._at = when
        self._timer = self._loop.call_at(when, self._run)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._at = None, inf

    def _run(self) -> None:
        self._timer, self._at = None, inf
        self.by(self._look(self._clock()))


def clock(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """The loop's time, in a finer resolution if available: uvloop counts milliseconds of the same clock as
    `monotonic`."""
    return time.monotonic if type(loop).__module__.startswith("uvloop") else loop.time
