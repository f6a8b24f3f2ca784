"""The memory budget of loaded versions, and the choice of versions to evict."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


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
