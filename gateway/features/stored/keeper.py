"""Stored responses for the event loop: writes in batches in the background, reads in threads.

Only a request that stores waits for the database, for a bounded time: entries that are not written yet are read from
memory. The database is opened when it is first needed.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from adapters.errors import CallerError, CapacityError, NotFound, StorageFull
from config.schema.state import StoredResponsesConfig
from gateway.features.quota.room import Quota, default_quota
from gateway.features.stored.store import ResponseDatabase, StoredResponse, StoredTurn, TooLong
from gateway.state.behind import RETRY, WriteBehind
from gateway.state.errors import StateError, StoreRefused
from gateway.state.opened import Opened

MAX_WAITING = 1000
MAX_WAITING_BYTES = 64 * 1024 * 1024
PATIENCE = 2.0
"""Seconds that an answer waits for its write. A later request may come to another process, which reads the database."""
ANSWERS_WITHIN = 10.0
"""Seconds to wait for a read of the database."""
MOST_REFUSED = 1000
"""Ids of refused responses that a process remembers."""
SWEEP = 600.0
THREADS = 4

T = TypeVar("T")


class _Waiting:
    """A turn that is not written yet."""

    __slots__ = ("ended", "turn")

    def __init__(self, turn: StoredTurn) -> None:
        self.turn = turn
        self.ended = asyncio.Event()


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
        self.config = config
        self.max_bytes = max_bytes
        self.wall = wall
        self._store = Opened(lambda: ResponseDatabase(url, quota))
        self._pending: dict[tuple[str, str], StoredResponse] = {}
        self._refused: OrderedDict[tuple[str, str], Exception] = OrderedDict()
        self._threads = ThreadPoolExecutor(THREADS, "stored")
        self._behind = WriteBehind(
            "stored responses", self._write, self._ended, lambda one: _described(one.turn),
            size=lambda one: one.turn.size, threads=self._threads,
        )  # fmt: skip

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
        if len(self._behind) >= MAX_WAITING or self._behind.size >= MAX_WAITING_BYTES:
            raise _unavailable()
        if not size or self._behind.away:
            return
        try:
            async with asyncio.timeout(PATIENCE):
                await self._in_thread(lambda store: store.check_room(tenant, size))
        except (StateError, TimeoutError) as error:
            self._behind.report(error)

    async def keep(self, turn: StoredTurn) -> None:
        """Store a turn. Returns when it is written or refused, or after `PATIENCE`."""
        if turn.response is not None:
            self._pending[turn.tenant, turn.response.id] = turn.response
        self._behind.put(waiting := _Waiting(turn))
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await waiting.ended.wait()

    async def run(self) -> None:
        """Write and delete until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._behind.run())
            group.create_task(self._sweep_often())

    async def aclose(self) -> None:
        """Try once more to write the waiting rows, and close the database."""
        await self._behind.aclose()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._store.close()

    def _write(self, batch: Sequence[_Waiting]) -> None:
        self._store().write([one.turn for one in batch])

    def _ended(self, one: _Waiting, error: Exception | None) -> None:
        if (response := one.turn.response) is not None:
            key = one.turn.tenant, response.id
            self._pending.pop(key, None)
            if error is not None:
                self._refused[key] = error
                if len(self._refused) > MOST_REFUSED:
                    self._refused.popitem(last=False)
        one.ended.set()

    async def _sweep_often(self) -> None:
        """Delete expired rows, but not before this process has stored or read any."""
        while True:
            await asyncio.sleep(SWEEP)
            if self._store:
                try:
                    await self._in_thread(self._sweep)
                except StateError as error:
                    self._behind.report(error)

    def _sweep(self, store: ResponseDatabase) -> None:
        store.sweep(self.wall(), self.config.per_tenant)

    # ── reads ─────────────────────────────────────────────────────────────────────────────────────────

    def pending(self, tenant: str, id_: str) -> StoredResponse | None:
        """A response that is not written yet. Raises `NotFound` for one that the database has refused."""
        if (error := self._refused.get((tenant, id_))) is not None:
            why = "the quota of this tenant is used up" if isinstance(error, StorageFull) else "the database refused it"
            message = f"Response with id '{id_[:128]}' is not stored: {why}."
            raise NotFound(message, code="response_not_stored")
        return self._pending.get((tenant, id_))

    async def forget(self, response: StoredResponse) -> None:
        """Delete a response, even if it is not written yet. Raises `CapacityError`."""
        tenant, id_, now = response.tenant, response.id, self.wall()
        try:
            async with asyncio.timeout(ANSWERS_WITHIN):
                for waiting in [one for one in self._behind if one.turn.response is response]:
                    await waiting.ended.wait()
        except TimeoutError:
            raise _unavailable() from None
        await self.read(lambda store: store.delete_response(tenant, id_, now))

    async def read(self, query: Callable[[ResponseDatabase], T]) -> T:
        """Query the store in a thread.

        Raises `CapacityError` if the database does not answer, and `CallerError` for a history that is too long and
        for a value that the database refuses.
        """
        try:
            async with asyncio.timeout(ANSWERS_WITHIN):
                return await self._in_thread(query)
        except StoreRefused:
            message = "The database cannot store or search for this value: send a text without control characters."
            raise CallerError(message, code="invalid_value") from None
        except (StateError, TimeoutError) as error:
            self._behind.report(error)
            raise _unavailable() from None
        except TooLong:
            message = "The stored conversation is too long for one request: begin another."
            raise CallerError(message, code="context_length_exceeded", param="input") from None

    async def _in_thread(self, query: Callable[[ResponseDatabase], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: query(self._store()))


def _described(turn: StoredTurn) -> str:
    kind, id_ = ("conversation", turn.conversation) if turn.response is None else ("response", turn.response.id)
    return f"the {kind} {id_} of {turn.tenant}"


def _unavailable() -> CapacityError:
    message = "The database of stored responses is unavailable: try again, or send `store: false`."
    return CapacityError(message, code="stored_responses_unavailable", retry_after=RETRY)
