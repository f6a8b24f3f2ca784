"""Memory of models: loaded versions count against a budget, and idle versions are unloaded for others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from adapters.errors import CapacityError
from config.schema.units import format_size
from runtimes.tensor.interfaces import ModelLoadError

INSUFFICIENT_MEMORY = "insufficient_memory"
"""The code of errors for which a model has no memory."""


class OversizedError(ModelLoadError):
    """A version takes more than the whole budget."""


class MemoryHold:
    """The bytes of one version, loaded or about to load."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Occupant:
    """A loaded version that could be unloaded now."""

    hold: MemoryHold
    last_used: float


@dataclass(slots=True)
class MemoryBudget:
    """Counts bytes; a `total` of 0 is no bound. Pure."""

    total: int = 0
    _held: dict[MemoryHold, int] = field(default_factory=dict)

    @property
    def used(self) -> int:
        return sum(self._held.values())

    @property
    def excess(self) -> int:
        """Bytes in use beyond the budget."""
        return max(0, self.used - self.total) if self.total else 0

    def fits(self, size: int) -> bool:
        """Whether the whole budget can hold a version of this size."""
        return not self.total or size <= self.total

    def hold(self, hold: MemoryHold, size: int) -> None:
        """Set the bytes of a version."""
        self._held[hold] = size

    def give_back(self, hold: MemoryHold) -> None:
        self._held.pop(hold, None)

    def victims(self, size: int, idle: Iterable[Occupant]) -> tuple[MemoryHold, ...] | None:
        """The versions to evict for `size` more bytes, least recently used first; None if all are not enough."""
        if not self.total:
            return ()
        missing = self.used + size - self.total
        chosen: list[MemoryHold] = []
        for occupant in sorted(idle, key=lambda occupant: occupant.last_used):
            if missing <= 0:
                break
            missing -= self._held.get(occupant.hold, 0)
            chosen.append(occupant.hold)
        return tuple(chosen) if missing <= 0 else None


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
            raise OversizedError(
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
                    code=INSUFFICIENT_MEMORY,
                )
            if victims is None:
                await asyncio.sleep(LOOK_SECONDS)
            for victim in victims or ():
                await self._evict(victim)  # unless it is at work again: then there is another look
