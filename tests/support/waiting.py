"""Waits for what another task, thread or process does."""

import asyncio
from collections.abc import Callable
from inspect import isawaitable


async def until(condition: Callable[..., object], seconds: float = 300.0, pause: float = 0.01) -> None:
    """Wait until a condition holds, which may be a coroutine function."""
    async with asyncio.timeout(seconds):
        while True:
            holds = condition()
            if await holds if isawaitable(holds) else holds:
                return
            await asyncio.sleep(pause)
