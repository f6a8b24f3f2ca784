"""The values that clients report to one process: written in batches, and read by the one decider.

A report waits until its values are stored, so that a client that got an answer need not send it again.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from adapters.errors import CallerError, CapacityError
from gateway.features.rollouts.live import LiveComparisons
from gateway.features.rollouts.store import RolloutStore
from gateway.features.rollouts.values import ValueRow
from gateway.state.behind import RETRY, WriteBehind
from gateway.state.errors import StateError
from gateway.state.opened import Opened

MOST_WAITING = 10_000
MOST_AT_ONCE = 1000
MOST_REMEMBERED = 65_536
"""Stored values that a process remembers: their doubles do not reach the database."""
PATIENCE = 5.0
"""Seconds in which the database stores a value."""


class _Waiting:
    """Values on their way into the database."""

    __slots__ = ("ended", "error", "rows")

    def __init__(self, rows: Sequence[ValueRow]) -> None:
        self.rows = rows
        self.ended = asyncio.Event()
        self.error: Exception | None = None
        """The reason why the database refuses them."""


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
        self._store = Opened(lambda: RolloutStore(url(), pepper()))
        self._behind = WriteBehind(
            "feedback", self._write, self._ended, lambda one: f"a report of {one.rows[0].comparison}",
            size=lambda one: len(one.rows), most=MOST_AT_ONCE,
        )  # fmt: skip
        self._remembered: OrderedDict[tuple[object, ...], None] = OrderedDict()

    async def put(self, rows: Sequence[ValueRow]) -> None:
        """Store values; those that this process has stored before are left out. Raises `CapacityError`, and
        `CallerError` for values that the database refuses."""
        fresh = [row for row in rows if row.once not in self._remembered]
        if not fresh:
            return
        if self._behind.size + len(fresh) > MOST_WAITING:
            raise _unavailable()
        self._behind.put(waiting := _Waiting(fresh))
        try:
            async with asyncio.timeout(PATIENCE):
                await waiting.ended.wait()
        except TimeoutError:
            raise _unavailable() from None
        if waiting.error is not None:
            raise CallerError("The database cannot store the value: send another one.", code="feedback_refused")

    async def subject(self, comparison: str, generation: int, subject: int) -> tuple[int, int, float] | None:
        """The arm of a subject, its stratum and the time of its assignment. Raises `CapacityError`."""
        try:
            store = await asyncio.to_thread(self._store)
            async with asyncio.timeout(PATIENCE):
                return await asyncio.to_thread(store.assignment, comparison, generation, subject)
        except (StateError, TimeoutError):
            raise _unavailable() from None

    async def run(self) -> None:
        """Write until cancelled. Values of a report that has waited too long are written too: they count once."""
        await self._behind.run()

    async def aclose(self) -> None:
        """Try once more to write the waiting values, and close the database."""
        await self._behind.aclose()
        self._store.close()

    def _write(self, batch: Sequence[_Waiting]) -> None:
        self._store().report([row for one in batch for row in one.rows])

    def _ended(self, one: _Waiting, error: Exception | None) -> None:
        one.error = error
        one.ended.set()
        if error is not None:
            return
        self.stored += len(one.rows)
        for row in one.rows:
            self._remembered[row.once] = None
        while len(self._remembered) > MOST_REMEMBERED:
            self._remembered.popitem(last=False)


def _unavailable() -> CapacityError:
    message = "The value could not be stored now: send it again. A value counts once, however often it is sent."
    return CapacityError(message, code="feedback_unavailable", retry_after=RETRY)


class FeedbackMetrics(Collector):
    """The values that clients have reported to one process."""

    def __init__(self, inbox: FeedbackInbox) -> None:
        self._inbox = inbox

    def collect(self) -> Iterator[Metric]:
        stored = CounterMetricFamily("headrace_feedback_values", "Values of clients that are stored.")
        stored.add_metric((), self._inbox.stored)
        yield stored
