"""One version of a model in service: what runs it, and who uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from runtimes.tensor.backends.base import Instance
from runtimes.tensor.memory import Hold
from runtimes.tensor.model_config import ModelConfig
from runtimes.tensor.statistics import ModelStatistics


class Scheduler(Protocol):
    """What the versions of a model need of that which runs their requests, beside `infer` and `stream`."""

    @property
    def busy(self) -> bool:
        """Whether anything waits or is computed, or a sequence is open."""
        ...

    def holds(self, sequence: int | str) -> bool:
        """Whether this sequence is open here."""
        ...

    async def drain(self) -> None:
        """Return when it is not busy. New requests of open sequences come until then."""
        ...

    def close(self) -> None:
        """Refuse newcomers, and end what waits; what is computed ends with the instances. Idempotent."""
        ...


@dataclass(slots=True, eq=False)
class ServedModel:
    """Got from `ModelManager.lease`, and given back with `release`, whatever happens between."""

    name: str
    version: str
    """As the wire has it."""
    config: ModelConfig
    """Complete."""
    scheduler: Any
    """See `Scheduler`."""
    instances: Sequence[Instance]
    folder: Path
    statistics: ModelStatistics
    load_seconds: float = 0.0
    memory_bytes: int = 0
    hold: Hold | None = None
    """Its part of the memory budget."""
    leases: int = 0
    last_used: float = 0.0
    """Loop time of the last request's end."""
    clock: Callable[[], float] = field(default=lambda: asyncio.get_running_loop().time(), repr=False)
    _unused: asyncio.Event | None = field(default=None, repr=False)
    """There while somebody waits for the last lease."""

    @property
    def number(self) -> int:
        return int(self.version)

    @property
    def is_idle(self) -> bool:
        return not self.leases and not self.scheduler.busy

    def release(self) -> None:
        """A request has ended."""
        self.leases -= 1
        self.last_used = self.clock()
        if not self.leases and self._unused is not None:
            self._unused.set()

    async def drain(self) -> None:
        """Return when nobody uses it any more. Only for one that `lease` does not give any more."""
        while not self.is_idle:
            await self.scheduler.drain()
            if self.leases:
                self._unused = asyncio.Event()
                await self._unused.wait()
                self._unused = None

    async def aclose(self) -> None:
        """End it, and what it still runs."""
        try:
            self.scheduler.close()
        finally:
            for instance in self.instances:
                await instance.aclose()
