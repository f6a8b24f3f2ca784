"""Encodes large texts in a thread, so that no other request waits for them on the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from adapters.errors import CapacityError

INLINE = 8 * 1024
"""Characters that are encoded on the loop: some 10 ms of the slowest text."""
MAX_WAITING = 64

T = TypeVar("T")


class EncodingThread:
    """One thread for one model's texts. It belongs to one event loop."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="llm-encode")
        self._waiting = 0
        self._this_turn = 0

    async def run(self, size: int, work: Callable[[], T]) -> T:
        """The result of `work` on a text of `size` characters. Raises CapacityError if too many texts wait."""
        if size <= INLINE:
            await self._take_turn(size)
            return work()
        if self._waiting >= MAX_WAITING:
            raise CapacityError("Too many large prompts are being encoded: try again later.", retry_after=1.0)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            self._waiting -= 1

    async def _take_turn(self, size: int) -> None:
        """Yield to other tasks after every INLINE characters, for any number of texts."""
        self._this_turn += size
        if self._this_turn > INLINE:
            self._this_turn = size
            await asyncio.sleep(0)
