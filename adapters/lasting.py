"""Work that has no end: after an unexpected error it begins again, is counted and is logged."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds until failed work begins again: doubled from the first to the second, which is also how long work must run
until its next failure counts as a first one."""
failures = Counter[str]()
"""Unexpected ends of the background tasks of this process, by task, without the names of endpoints."""
ENDPOINT = " of endpoint "


async def lasting(name: str, work: Callable[[], Awaitable[None]]) -> None:
    """Run work until it returns or is cancelled. After an error it begins again."""
    pause, clock = FIRST_PAUSE, asyncio.get_running_loop().time
    failures[_label(name)] += 0  # a series that begins at its first failure has no increase
    while True:
        begun = clock()
        try:
            await work()
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            failed: BaseException = error  # of a library that cancels what it has begun
        except Exception as error:
            failed = error
        else:
            return
        if clock() - begun >= LONGEST_PAUSE:
            pause = FIRST_PAUSE
        report_failure(name, failed, f"begins again in {pause:.0f} s")
        await asyncio.sleep(pause)
        pause = min(LONGEST_PAUSE, 2 * pause)


def report_failure(name: str, error: BaseException, then: str) -> None:
    """Count and log an unexpected end."""
    failures[_label(name)] += 1
    log.critical("the background task %s failed and %s", name, then, exc_info=error)


def _label(name: str) -> str:
    return name.partition(ENDPOINT)[0]
