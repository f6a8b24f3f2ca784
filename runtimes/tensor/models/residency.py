"""Memory of models: loaded versions count against a budget, and idle versions are unloaded for others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from adapters.errors import CapacityError
from config.schema.units import format_size
from runtimes.tensor.backends.base import ModelLoadError
from runtimes.tensor.models.memory import MemoryBudget, MemoryHold, Occupant

WAIT_SECONDS = 10.0
LOOK_SECONDS = 0.1
KEEP_SECONDS = 1.0


class Residency:
    """`idle` lists versions that could be evicted; `evict` unloads a version and releases its bytes."""

    def __init__(
        self, total: int, idle: Callable[[], Iterable[Occupant]], evict: Callable[[MemoryHold], Awaitable[None]]
    ) -> None:
        self.budget = MemoryBudget(total)
        self._idle = idle
        self._evict = evict
        self._one_at_a_time = asyncio.Lock()

    async def admit(self, size: int, version: str) -> MemoryHold:
        """Reserve bytes. Raises `ModelLoadError` if they exceed the budget, `CapacityError` if no memory becomes free
        in time."""
        self._refuse_oversized(size, version)
        hold = MemoryHold()
        if self.budget.total:
            async with self._one_at_a_time:
                await self._make_room(size, version)
                self.budget.hold(hold, size)
        return hold

    async def settle(self, hold: MemoryHold, size: int, version: str) -> None:
        """Count the measured bytes. Raises `ModelLoadError` if they exceed the whole budget."""
        if not self.budget.total:
            return
        self._refuse_oversized(size, version)
        self.budget.hold(hold, size)
        await self.trim()  # beside one that waits for room, and perhaps for this very version to become idle

    def give_back(self, hold: MemoryHold) -> None:
        self.budget.give_back(hold)

    async def trim(self) -> None:
        """Unload idle versions while the budget is exceeded."""
        for occupant in sorted(self._idle(), key=lambda occupant: occupant.last_used):
            if not self.budget.excess:
                return
            await self._evict(occupant.hold)

    async def keep(self) -> None:
        """Until cancelled, unload versions that were busy when their memory was required."""
        while True:
            await asyncio.sleep(KEEP_SECONDS)
            if self.budget.excess:
                await self.trim()

    def _refuse_oversized(self, size: int, version: str) -> None:
        if not self.budget.fits(size):
            total = self.budget.total
            raise ModelLoadError(
                f"{version} takes {size / 2**20:.1f} MiB, and the memory budget is {format_size(total)}: "
                "raise it, or run fewer instances"
            )

    async def _make_room(self, size: int, version: str) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + WAIT_SECONDS
        while (victims := self.budget.victims(size, self._idle())) != ():
            if victims is None and loop.time() >= until:
                raise CapacityError(
                    f"There is no memory for {version}: all loaded models are in use.",
                    retry_after=WAIT_SECONDS,
                )
            if victims is None:
                await asyncio.sleep(LOOK_SECONDS)
            for victim in victims or ():
                await self._evict(victim)  # unless it is at work again: then there is another look
