"""The values that clients report to one process: written in batches, and read by the one decider.

A report waits until its values are stored, so that a client that got an answer need not send it again.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial

from adapters.errors import CapacityError
from gateway.auth.behind import RETRY, write_behind
from gateway.auth.errors import KeysError
from gateway.rollouts.live import LiveComparisons
from gateway.rollouts.store import RolloutStore
from gateway.rollouts.values import ValueRow

log = logging.getLogger(__name__)
MOST_WAITING = 10_000
MOST_AT_ONCE = 1000
MOST_REMEMBERED = 65_536
"""Stored values that a process remembers: their doubles do not reach the database."""
PATIENCE = 5.0
"""Seconds in which the database stores a value."""


class _Waiting:
    """Values on their way into the database."""

    __slots__ = ("rows", "stored")

    def __init__(self, rows: Sequence[ValueRow]) -> None:
        self.rows = rows
        self.stored = asyncio.Event()


class FeedbackInbox:
    """`put` values; `run` writes until cancelled; then `aclose`. The database is opened with the first value."""

    def __init__(
        self,
        url: Callable[[], str],
        pepper: Callable[[], bytes],
        live: LiveComparisons,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.live = live
        self.wall = wall
        self.stored = 0
        """Values that are stored, with their doubles."""
        self._url = url
        self._pepper = pepper
        self._store: RolloutStore | None = None
        self._waiting: list[_Waiting] = []
        self._size = 0
        self._noted = asyncio.Event()
        self._remembered: OrderedDict[tuple[object, ...], None] = OrderedDict()
        self._available = True

    async def put(self, rows: Sequence[ValueRow]) -> None:
        """Store values; those that this process has stored before are left out. Raises `CapacityError`."""
        fresh = [row for row in rows if row.once not in self._remembered]
        if not fresh:
            return
        if self._size + len(fresh) > MOST_WAITING:
            raise _unavailable()
        waiting = _Waiting(fresh)
        self._waiting.append(waiting)
        self._size += len(fresh)
        self._noted.set()
        try:
            async with asyncio.timeout(PATIENCE):
                await waiting.stored.wait()
        except TimeoutError:
            raise _unavailable() from None

    async def subject(self, comparison: str, generation: int, subject: int) -> tuple[int, int, float] | None:
        """The arm of a subject, its stratum and the time of its assignment. Raises `CapacityError`."""
        try:
            store = await self._opened()
            async with asyncio.timeout(PATIENCE):
                return await asyncio.to_thread(store.assignment, comparison, generation, subject)
        except (KeysError, TimeoutError):
            raise _unavailable() from None

    async def run(self) -> None:
        """Write until cancelled. Values of a report that has waited too long are written too: they count once."""
        await write_behind(self._noted, self._write_out, self._report_unavailable)

    async def aclose(self) -> None:
        """Try once more to write the waiting values, and close the database."""
        try:
            async with asyncio.timeout(PATIENCE):
                await self._write_out()
        except (KeysError, TimeoutError) as error:
            log.error("%d values of clients are lost: %s", self._size, error)
        if self._store is not None:
            self._store.close()

    async def _write_out(self) -> None:
        while self._waiting:
            batch = self._batch()
            rows = [row for one in batch for row in one.rows]
            store = await self._opened()
            await asyncio.to_thread(partial(store.report, rows))
            del self._waiting[: len(batch)]
            self._size -= len(rows)
            self.stored += len(rows)
            self._available = True
            for row in rows:
                self._remembered[row.once] = None
            while len(self._remembered) > MOST_REMEMBERED:
                self._remembered.popitem(last=False)
            for one in batch:
                one.stored.set()

    def _report_unavailable(self, error: KeysError) -> None:
        if self._available:
            log.warning("feedback: %s; values wait in memory", error)
        self._available = False

    def _batch(self) -> list[_Waiting]:
        batch, size = list[_Waiting](), 0
        for one in self._waiting:
            size += len(one.rows)
            if batch and size > MOST_AT_ONCE:
                break
            batch.append(one)
        return batch

    async def _opened(self) -> RolloutStore:
        if self._store is None:
            self._store = await asyncio.to_thread(RolloutStore, self._url(), self._pepper())
        return self._store


def _unavailable() -> CapacityError:
    message = "The value could not be stored now: send it again. A value counts once, however often it is sent."
    return CapacityError(message, code="feedback_unavailable", retry_after=RETRY)
