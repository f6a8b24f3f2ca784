"""Stored responses for the event loop: writes in batches in the background, reads in threads.

Only a request that stores waits for the database, for a bounded time: entries that are not written yet are read from
memory. The database is opened when it is first needed.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import TypeVar

from adapters.errors import CallerError, CapacityError
from config.schema.state import StoredResponsesConfig
from gateway.auth.errors import KeysError
from gateway.quota.room import Quota, default_quota
from gateway.stored.store import ResponseDatabase, StoredResponse, StoredTurn, TooLong

_log = logging.getLogger(__name__)
MAX_WAITING = 1000
MAX_WAITING_BYTES = 64 * 1024 * 1024
PATIENCE = 2.0
"""Seconds that an answer waits for its write. A later request may come to another process, which reads the database."""
ANSWERS_WITHIN = 10.0
"""Seconds to wait for a read of the database."""
RETRY = 1.0
SWEEP = 600.0
THREADS = 4

T = TypeVar("T")


class _Waiting:
    """A turn that is not written yet."""

    __slots__ = ("turn", "written")

    def __init__(self, turn: StoredTurn) -> None:
        self.turn = turn
        self.written = asyncio.Event()


class Keeper:
    """`keep` turns, `read` with any method of a `ResponseDatabase`; `run` writes until cancelled."""

    def __init__(
        self,
        url: str,
        config: StoredResponsesConfig,
        max_bytes: int,
        wall: Callable[[], float] = time.time,
        quota: Quota = default_quota,
    ) -> None:
        """`max_bytes` bounds one request's history."""
        self._quota = quota
        self.config = config
        self.max_bytes = max_bytes
        self.wall = wall
        self._url = url
        self._store: ResponseDatabase | None = None
        self._opening = Lock()
        self._waiting: list[_Waiting] = []
        self._size = 0
        self._pending: dict[tuple[str, str], StoredResponse] = {}
        self._noted = asyncio.Event()
        self._threads = ThreadPoolExecutor(THREADS, "stored")
        self._away = False

    @property
    def expires_at(self) -> float:
        """The expiry of rows that are stored now."""
        return self.wall() + self.config.retention

    # ── writes ────────────────────────────────────────────────────────────────────────────────────────

    async def require_room(self, tenant: str, size: int) -> None:
        """Refuse a request whose response could not be stored: it adds `size` bytes at least, 0 for none.

        Raises `StorageFull`, and `CapacityError` if too many responses wait. While the database is unavailable,
        they wait, and the quota is checked where they are written.
        """
        if len(self._waiting) >= MAX_WAITING or self._size >= MAX_WAITING_BYTES:
            raise _unavailable()
        if not size or self._away:
            return
        try:
            async with asyncio.timeout(PATIENCE):
                await self._in_thread(lambda store: store.check_room(tenant, size))
        except (KeysError, TimeoutError) as error:
            self._report(str(error) or "the state database does not answer")

    async def keep(self, turn: StoredTurn) -> None:
        """Store a turn. Returns when it is written, or after `PATIENCE`."""
        waiting = _Waiting(turn)
        self._waiting.append(waiting)
        self._size += turn.size
        if turn.response is not None:
            self._pending[turn.tenant, turn.response.id] = turn.response
        self._noted.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await waiting.written.wait()

    async def run(self) -> None:
        """Write and delete until cancelled."""
        loop = asyncio.get_running_loop()
        next_sweep = loop.time()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(next_sweep):
                    await self._noted.wait()
            self._noted.clear()
            try:
                await self._write_out()
                if loop.time() >= next_sweep:
                    next_sweep = loop.time() + SWEEP
                    await self._sweep()
            except KeysError as error:
                self._report(str(error))
                await asyncio.sleep(RETRY)
                self._noted.set()

    async def aclose(self) -> None:
        """Try once more to write the waiting rows, and close the database."""
        try:
            async with asyncio.timeout(ANSWERS_WITHIN):
                await self._write_out()
        except (KeysError, TimeoutError) as error:
            _log.error("%d stored responses are lost: %s", len(self._waiting), error)
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._store is not None:
            self._store.close()

    async def _write_out(self) -> None:
        while batch := self._waiting[:]:
            refused = await self._in_thread(partial(_write, [one.turn for one in batch]))
            for tenant, count in Counter(turn.tenant for turn in refused).items():
                _log.warning("%d responses of %s are not stored: its quota is used up", count, tenant)
            del self._waiting[: len(batch)]
            self._away = False
            for one in batch:
                self._size -= one.turn.size
                if one.turn.response is not None:
                    self._pending.pop((one.turn.tenant, one.turn.response.id), None)
                one.written.set()

    async def _sweep(self) -> None:
        """Delete expired rows, but not before this process has stored or read any."""
        if self._store is not None:
            now, most = self.wall(), self.config.per_tenant
            await self._in_thread(lambda store: store.sweep(now, most))

    def _report(self, why: str) -> None:
        if not self._away:
            _log.warning("%s; %d stored responses wait in memory", why, len(self._waiting))
        self._away = True

    # ── reads ─────────────────────────────────────────────────────────────────────────────────────────

    def pending(self, tenant: str, id_: str) -> StoredResponse | None:
        """A response that is not written yet."""
        return self._pending.get((tenant, id_))

    async def forget(self, response: StoredResponse) -> None:
        """Delete a response, even if it is not written yet. Raises `CapacityError`."""
        tenant, id_, now = response.tenant, response.id, self.wall()
        try:
            async with asyncio.timeout(ANSWERS_WITHIN):
                for waiting in [one for one in self._waiting if one.turn.response is response]:
                    await waiting.written.wait()
        except TimeoutError:
            raise _unavailable() from None
        await self.read(lambda store: store.delete_response(tenant, id_, now))

    async def read(self, query: Callable[[ResponseDatabase], T]) -> T:
        """Query the store in a thread.

        Raises `CapacityError` if the database does not answer, and `CallerError` for a history that is too long.
        """
        try:
            async with asyncio.timeout(ANSWERS_WITHIN):
                return await self._in_thread(query)
        except (KeysError, TimeoutError) as error:
            self._report(str(error))
            raise _unavailable() from None
        except TooLong:
            message = "The stored conversation is too long for one request: begin another."
            raise CallerError(message, code="context_length_exceeded", param="input") from None

    async def _in_thread(self, query: Callable[[ResponseDatabase], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: query(self._opened()))

    def _opened(self) -> ResponseDatabase:
        """In a thread."""
        with self._opening:
            if self._store is None:
                self._store = ResponseDatabase(self._url, self._quota)
            return self._store


def _write(turns: list[StoredTurn], store: ResponseDatabase) -> list[StoredTurn]:
    return store.write(turns)


def _unavailable() -> CapacityError:
    message = "The database of stored responses is unavailable: try again, or send `store: false`."
    return CapacityError(message, code="stored_responses_unavailable", retry_after=RETRY)
