"""The parts of the table of limits, one for each worker that lives."""

import asyncio
import logging
import os

from gateway.app import StartError
from gateway.limits.shared import SharedTable

log = logging.getLogger(__name__)
RETRY_SECONDS = 1.0


class LimitSlots:
    """Twice as many as workers, for predecessors and successors live together, and some for those that drain long."""

    def __init__(self, workers: int) -> None:
        """Raises `StartError`."""
        try:
            self._table = SharedTable.create(4 * max(workers, os.cpu_count() or 1))
        except OSError as error:
            raise StartError(f"workers: {error}") from None
        self._free = set(range(self._table.workers))
        self._one_at_a_time = asyncio.Lock()

    @property
    def fd(self) -> int:
        """The table, for workers to inherit."""
        return self._table.fd

    @property
    def most_workers(self) -> int:
        """How many can be replaced all at once."""
        return self._table.workers // 2

    def take(self) -> int | None:
        """A limit_slot that nobody has; None when all are taken by workers that still drain."""
        return self._free.pop() if self._free else None

    async def give_back(self, limit_slot: int) -> None:
        """Its worker is dead: what that held of limits is given back, and another one may have the limit_slot."""
        async with self._one_at_a_time:
            while not await asyncio.to_thread(self._table.release_worker, limit_slot):
                log.warning("what a dead worker held of limits is not given back yet")
                await asyncio.sleep(RETRY_SECONDS)
        self._free.add(limit_slot)

    def close(self) -> None:
        """No worker is left."""
        self._table.close()
