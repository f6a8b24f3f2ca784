"""Slots of the shared table that counts limits, one for each running worker."""

import asyncio
import logging
import os

from gateway.errors import StartError
from gateway.limits.shared import SharedTable

log = logging.getLogger(__name__)
RETRY_SECONDS = 1.0


class LimitSlots:
    """Twice as many as workers, as predecessors and successors run together, and more for long drains."""

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
        """The file descriptor of the table, for workers to inherit."""
        return self._table.fd

    @property
    def slots(self) -> int:
        """The number of slots."""
        return self._table.workers

    @property
    def most_workers(self) -> int:
        """The number of workers that can be replaced at once."""
        return self._table.workers // 2

    def acquire(self) -> int | None:
        """A free slot; None if workers that still drain hold all of them."""
        return self._free.pop() if self._free else None

    async def release(self, limit_slot: int) -> None:
        """Free a slot whose worker has ended, after releasing the worker's reservations."""
        async with self._one_at_a_time:
            while not await asyncio.to_thread(self._table.release_worker, limit_slot):
                log.warning("cannot release the limits held by a worker that ended: retrying in %g s", RETRY_SECONDS)
                await asyncio.sleep(RETRY_SECONDS)
        self._free.add(limit_slot)

    def close(self) -> None:
        """Close the table. No worker runs any more."""
        self._table.close()
