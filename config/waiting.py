"""Waits for a change outside of the process, such as that of a file, without waking the event loop for each look."""

import asyncio
import math
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor

threads: Executor = ThreadPoolExecutor(2, "looks")
"""Two: a mount that hangs must not delay another look."""


async def until(look: Callable[[], bool], interval: float) -> None:
    """Call `look` in a thread every `interval` seconds. Returns when it is true, and raises its exception.

    The times are multiples of the interval, so that several waits wake the loop together. A look that takes longer is
    not repeated meanwhile.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    is_looking = False
    timer: asyncio.TimerHandle

    def end(error: Exception | None) -> None:
        if ended.done():
            return
        if error is None:
            ended.set_result(None)
        else:
            ended.set_exception(error)

    def work() -> None:
        nonlocal is_looking
        try:
            if look():
                loop.call_soon_threadsafe(end, None)
        except Exception as error:
            loop.call_soon_threadsafe(end, error)
        finally:
            is_looking = False

    def tick() -> None:
        nonlocal is_looking, timer
        timer = loop.call_at(_next(loop.time(), interval), tick)
        if not is_looking:
            is_looking = True
            threads.submit(work)

    timer = loop.call_at(_next(loop.time(), interval), tick)
    try:
        await ended
    finally:
        timer.cancel()


def _next(now: float, interval: float) -> float:
    """The next multiple of the interval."""
    return (math.floor(now / interval) + 1) * interval
