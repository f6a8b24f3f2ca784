"""Files and batches for the fronts: blocking work in threads, with bounded waits."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TypeVar

from adapters.errors import CapacityError
from config.schema.batches.batches import BatchesConfig
from gateway.auth.errors import KeysError
from gateway.batches.opening import open_storage
from gateway.batches.storage import Storage, StorageError
from gateway.batches.store import BatchStore

ANSWERS_WITHIN = 30.0
RETRY = 1.0
THREADS = 8
T = TypeVar("T")


class BatchService:
    """The storage and the database of one process. Both are opened when they are first needed."""

    def __init__(self, config: BatchesConfig, url: str, pepper: Callable[[], bytes], wall: Callable[[], float]) -> None:
        self.config = config
        self.wall = wall
        self.threads = ThreadPoolExecutor(THREADS, "batches")
        self.created: Callable[[], None] = lambda: None
        """Called after a batch is created or cancelled."""
        self._url = url
        self._pepper = pepper
        self._opening = Lock()
        self._store: BatchStore | None = None
        self._storage: Storage | None = None

    def store(self) -> BatchStore:
        """The database. Blocks. Raises `KeysError`."""
        with self._opening:
            if self._store is None:
                self._store = BatchStore(self._url, self._pepper())
            return self._store

    def storage(self) -> Storage:
        """The storage. Blocks. Raises `StorageError`."""
        with self._opening:
            if self._storage is None:
                self._storage = open_storage(self.config)
            return self._storage

    async def query(self, query: Callable[[BatchStore], T]) -> T:
        """Query the database in a thread. Raises `CapacityError` if it does not answer."""
        return await self.in_thread(lambda: query(self.store()))

    async def stored(self, use: Callable[[Storage], T]) -> T:
        """Use the storage in a thread. Raises `CapacityError` if it does not answer."""
        return await self.in_thread(lambda: use(self.storage()))

    async def in_thread(self, function: Callable[[], T]) -> T:
        """Call a blocking function. Raises `CapacityError` if the storage or the database does not answer."""
        try:
            async with asyncio.timeout(ANSWERS_WITHIN):
                return await asyncio.get_running_loop().run_in_executor(self.threads, function)
        except (KeysError, StorageError, TimeoutError):
            message = "The storage of files and batches is unavailable: try again later."
            raise CapacityError(message, code="storage_unavailable", retry_after=RETRY) from None

    def close(self) -> None:
        """Close the database."""
        self.threads.shutdown(wait=False, cancel_futures=True)
        if self._store is not None:
            self._store.close()
