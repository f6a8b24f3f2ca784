"""One thread for work that would hold the event loop up."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from adapters import offload
from adapters.errors import CapacityError
from adapters.offload.tenant_queue import TenantQueue

INLINE = 8 * 1024
"""Characters that are encoded on the loop: some 10 ms of the slowest text."""
MAX_WAITING = 64

T = TypeVar("T")


class EncodingThread:
    """One thread for one model's texts, on which tenants take turns. It belongs to one event loop."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="llm-encode")
        self._waiting = TenantQueue[asyncio.Future[None]]()
        self._busy = False
        self._this_turn = 0

    async def run(self, size: int, work: Callable[[], T]) -> T:
        """The result of `work` on a text of `size` characters. Raises CapacityError if too many of its tenant wait."""
        if size <= INLINE:
            await self._take_turn(size)
            return work()
        await self._enter()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            self._leave()

    async def _enter(self) -> None:
        tenant = offload.TENANT.get()
        if not self._busy:
            self._busy = True
            return
        if self._waiting.count(tenant) >= MAX_WAITING:
            raise CapacityError("Too many large prompts are being encoded: try again later.", retry_after=1.0)
        turn = asyncio.get_running_loop().create_future()
        self._waiting.put(tenant, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not self._waiting.remove(tenant, turn) and not turn.cancelled():
                self._leave()
            raise

    def _leave(self) -> None:
        while self._waiting:
            turn = self._waiting.take()
            if not turn.cancelled():
                turn.set_result(None)
                return
        self._busy = False

    async def _take_turn(self, size: int) -> None:
        """Yield to other tasks after every INLINE characters, for any number of texts."""
        self._this_turn += size
        if self._this_turn > INLINE:
            self._this_turn = size
            await asyncio.sleep(0)
