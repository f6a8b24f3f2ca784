"""Signals of a running gateway: SIGTERM and SIGINT, SIGHUP, SIGUSR2."""

import asyncio
import signal
from collections.abc import Awaitable, Callable


class Signals:
    """Records signals from its creation on, so that no signal kills the process during the start.

    The first SIGTERM or SIGINT sets `stop`, a second one `stop_now`. SIGHUP sets `reload`, SIGUSR2 `restart`.
    """

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.stop_now = asyncio.Event()
        self.reload = asyncio.Event()
        self.restart = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self.reload.set)
        loop.add_signal_handler(signal.SIGUSR2, self.restart.set)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)

    def _stop(self) -> None:
        (self.stop_now if self.stop.is_set() else self.stop).set()


async def until(event: asyncio.Event, work: Awaitable[object]) -> bool:
    """Await `work`, or cancel it when `event` is set. True if `work` completed. Raises the exceptions of `work`."""
    task, stopped = asyncio.ensure_future(work), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
    if task.cancelled():
        return False
    task.result()
    return True


async def each(event: asyncio.Event, act: Callable[[], Awaitable[None]]) -> None:
    """Call `act` each time that `event` is set, until cancelled. Settings during one call count as one."""
    while True:
        await event.wait()
        event.clear()
        await act()
