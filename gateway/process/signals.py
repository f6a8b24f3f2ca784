"""Signals of a running gateway: SIGTERM and SIGINT, SIGHUP, SIGUSR2."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping


class Signals:
    """Records signals from its creation on, so that no signal kills the process during the start.

    The first SIGTERM or SIGINT sets `stop`, a second one `stop_now`. SIGHUP and SIGUSR2 wait for `follow`.
    """

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.stop_now = asyncio.Event()
        self._waiting: set[signal.Signals] = set()
        self._received = asyncio.Event()
        loop = asyncio.get_running_loop()
        for order in (signal.SIGHUP, signal.SIGUSR2):
            loop.add_signal_handler(order, self._note, order)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)

    async def follow(self, acts: Mapping[signal.Signals, Callable[[], Awaitable[None]]]) -> None:
        """Call the act of each order, until cancelled. Several of a kind during one act count as one."""
        while True:
            await self._received.wait()
            self._received.clear()
            received, self._waiting = self._waiting, set()
            for order in sorted(received):
                await acts[order]()

    def _note(self, order: signal.Signals) -> None:
        self._waiting.add(order)
        self._received.set()

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
