"""Files and batches for the fronts: blocking work in threads, with bounded waits."""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

from adapters.errors import CapacityError
from config.schema.batches import BatchesConfig
from gateway.features.batches.opening import open_storage
from gateway.features.batches.sealing import LineSeals
from gateway.features.batches.storage import Storage, StorageError
from gateway.features.batches.store import BatchStore
from gateway.features.quota.room import Quota, default_quota
from gateway.state.errors import StateError, StoreUnavailable
from gateway.state.opened import Opened

log = logging.getLogger(__name__)
ANSWERS_WITHIN = 30.0
RETRY = 1.0
LOCKED_ATTEMPTS = 3
THREADS = 8
T = TypeVar("T")


class BatchService:
    """The storage and the database of one process. Both are opened when they are first needed."""

    def __init__(
        self,
        config: BatchesConfig,
        url: str,
        pepper: Callable[[], bytes],
        wall: Callable[[], float],
        quota: Quota = default_quota,
    ) -> None:
        self._quota = quota
        self.config = config
        self.wall = wall
        self.threads = ThreadPoolExecutor(THREADS, "batches")
        self.created: Callable[[], None] = lambda: None
        """Called after a batch is created or cancelled."""
        self.waits: Callable[[str], list[str]] = lambda batch: []
        """The reasons why lines of a batch wait in this process."""
        self.store = Opened(lambda: BatchStore(url, pepper(), quota))
        """The database. Raises `StateError`."""
        self.storage: Callable[[asyncio.AbstractEventLoop], Storage] = cache(lambda loop: open_storage(config, loop))
        """The storage, for the event loop. Raises `StorageError`."""
        self.seals = LineSeals(pepper)
        self._reported_at = float("-inf")

    async def query(self, query: Callable[[BatchStore], T]) -> T:
        """Query the database in a thread. Raises `CapacityError` if it does not answer."""
        return await self.in_thread(lambda: self._insist(query))

    def _insist(self, query: Callable[[BatchStore], T]) -> T:
        """Query again if other writers hold SQLite's lock for long, as on a slow disk."""
        for _ in range(LOCKED_ATTEMPTS - 1):
            try:
                return query(self.store())
            except StoreUnavailable as error:
                if "locked" not in str(error):
                    raise
        return query(self.store())

    async def stored(self, use: Callable[[Storage], T]) -> T:
        """Use the storage in a thread. Raises `CapacityError` if it does not answer."""
        loop = asyncio.get_running_loop()
        return await self.in_thread(lambda: use(self.storage(loop)))

    async def in_thread(self, function: Callable[[], T]) -> T:
        """Call a blocking function. Raises `CapacityError` if the storage or the database does not answer."""
        try:
            async with asyncio.timeout(ANSWERS_WITHIN):
                return await asyncio.get_running_loop().run_in_executor(self.threads, function)
        except (StateError, StorageError, TimeoutError) as error:
            self._report(str(error) or f"no answer within {ANSWERS_WITHIN:.0f} s")
            message = "The storage of files and batches is unavailable: try again later."
            raise CapacityError(message, code="storage_unavailable", retry_after=RETRY) from None

    def _report(self, problem: str) -> None:
        """Log a failure, at most once a second."""
        now = time.monotonic()
        if now - self._reported_at >= 1.0:
            self._reported_at = now
            log.warning("batches: a request failed: %s", problem)

    def close(self) -> None:
        """Close the database."""
        self.threads.shutdown(wait=False, cancel_futures=True)
        self.store.close()
