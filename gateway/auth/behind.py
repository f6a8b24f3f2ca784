"""Writes behind the requests: waits for something to write, and again while the database is unavailable."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NoReturn

from gateway.auth.errors import KeysError

RETRY = 1.0
"""Seconds until the next attempt while the database is unavailable."""


async def write_behind(
    noted: asyncio.Event, write: Callable[[], Awaitable[None]], unavailable: Callable[[KeysError], None]
) -> NoReturn:
    """Call `write` whenever `noted` is set, until cancelled. `unavailable` receives each failure of the database."""
    while True:
        await noted.wait()
        noted.clear()
        try:
            await write()
        except KeysError as error:
            unavailable(error)
            noted.set()
            await asyncio.sleep(RETRY)
