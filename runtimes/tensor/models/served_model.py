"""One version of a model in service: its scheduler, instances and leases."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runtimes.tensor.backends.base import Instance
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.models.memory import MemoryHold
from runtimes.tensor.scheduling.scheduler import ModelScheduler
from runtimes.tensor.statistics import ModelStatistics

__all__ = ["ModelScheduler", "ServedModel"]


@dataclass(slots=True, eq=False)
class ServedModel:
    """A version in service. `ModelManager.lease` acquires it; `release` must follow."""

    name: str
    version: str
    """The version in the form of the protocol."""
    config: ModelConfig
    """Complete."""
    scheduler: ModelScheduler
    instances: Sequence[Instance]
    folder: Path
    statistics: ModelStatistics
    load_seconds: float = 0.0
    memory_bytes: int = 0
    hold: MemoryHold | None = None
    """The version's part of the memory budget."""
    leases: int = 0
    last_used: float = 0.0
    """Loop time of the last request's end."""
    clock: Callable[[], float] = field(default_factory=lambda: asyncio.get_running_loop().time, repr=False)
    _unused: asyncio.Event | None = field(default=None, repr=False)
    """Set while the version waits for its last lease."""

    @property
    def number(self) -> int:
        return int(self.version)

    @property
    def is_idle(self) -> bool:
        return not self.leases and self.scheduler.is_idle

    def release(self) -> None:
        """Release the lease of a request that has ended."""
        self.leases -= 1
        self.last_used = self.clock()
        if not self.leases and self._unused is not None:
            self._unused.set()

    async def drain(self) -> None:
        """Return when the last lease is released. Only for a version that is out of service."""
        while not self.is_idle:
            await self.scheduler.drain()
            if self.leases:
                self._unused = asyncio.Event()
                await self._unused.wait()
                self._unused = None

    async def aclose(self) -> None:
        """End the version, and its requests in progress."""
        try:
            await self.scheduler.aclose()
        finally:
            for instance in self.instances:
                await instance.aclose()
