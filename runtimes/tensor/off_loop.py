"""Runs work on large buffers in threads, so that it does not block the event loop.

Only for functions that release Python's lock while they work: reads and writes of files, hashes, copies by numpy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

LARGE: Final = 1 << 20
"""Bytes from which a copy takes long enough for a thread."""
T = TypeVar("T")


async def off_loop(work: Callable[[], T]) -> T:
    """The result of `work`, which runs to its end also if the caller is cancelled."""
    future = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        future.add_done_callback(retrieve)
        raise


def retrieve(future: asyncio.Future[Any]) -> None:
    """Retrieve an exception that no caller awaits."""
    if not future.cancelled():
        future.exception()
