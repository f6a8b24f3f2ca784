"""Waits until no work runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


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
