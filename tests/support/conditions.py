"""Conditions that a test waits for."""

import asyncio
from collections.abc import Callable

PATIENCE = 300.0


async def until(condition: Callable[[], object]) -> None:
    """Return when the condition holds. Fails after five minutes."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.005)
