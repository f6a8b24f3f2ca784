"""Items that wait in memory until they are written, also during an outage of the database."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from math import inf
from typing import Generic, TypeVar

from gateway.state.errors import StoreUnavailable
from gateway.state.faults import is_outage
from gateway.state.insist import Insistence
from gateway.state.refusals import BatchOutcome, refuse, write_each

log = logging.getLogger(__name__)
RETRY = 1.0
"""Seconds after which a client may try again while the database is away."""
_WRITING = "writing"
PATIENCE = 10.0
"""Seconds after which a database that neither answers nor fails counts as away."""
T = TypeVar("T")


class WriteBehind(Generic[T]):
    """`put` items; `run` writes them in their order until cancelled; then `aclose`.

    An item that the database refuses ends with its reason; an outage lets all items wait.
    """

    def __init__(
        self,
        name: str,
        write: Callable[[Sequence[T]], object],
        ended: Callable[[T, Exception | None], None],
        describe: Callable[[T], str],
        *,
        size: Callable[[T], int] = lambda _: 1,
        most: float = inf,
        threads: Executor | None = None,
    ) -> None:
        """`write` blocks, and writes all of its items or none. `ended` receives each item that is written, or its
        refusal. `size` is the size of an item, and `most` bounds a batch. `describe` names an item for operators."""
        self.size = 0
        """The size of the items that wait."""
        self._name = name
        self._write = write
        self._ended = ended
        self._describe = describe
        self._size_of = size
        self._most = most
        self._threads = threads
        self._waiting: deque[T] = deque()
        self._noted = asyncio.Event()
        self._writing: asyncio.Future[BatchOutcome] | None = None
        self._insist = Insistence(name, meanwhile="items wait in memory", ends=lambda error: not is_outage(error))

    @property
    def away(self) -> bool:
        """Whether the last attempt found the database away."""
        return not self._insist.available

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[T]:
        return iter(self._waiting)

    def put(self, item: T) -> None:
        """Let an item be written. Never blocks; the caller bounds what waits."""
        self._waiting.append(item)
        self.size += self._size_of(item)
        self._noted.set()

    async def run(self) -> None:
        """Write until cancelled. May be called again after an error."""
        self._noted.set()
        while True:
            await self._noted.wait()
            self._noted.clear()
            await self._insist(_WRITING, self._write_out)

    async def aclose(self) -> int:
        """Try once more. Returns the number of lost items."""
        try:
            await self._write_out()
        except Exception as error:
            if not is_outage(error):
                raise
            log.error("%s: %d items are lost: %s", self._name, len(self._waiting), error)
        return len(self._waiting)

    def report(self, outage: Exception) -> None:
        """Log the begin of an outage that a reader has noticed. It ends with the next write."""
        self._insist.failed(_WRITING, outage)

    async def _write_out(self) -> None:
        """Write all that waits. Raises the error of a database that is away."""
        while self._waiting:
            if self._writing is None:
                loop = asyncio.get_running_loop()
                self._writing = loop.run_in_executor(self._threads, write_each, self._batch(), self._write)
            done, _ = await asyncio.wait((self._writing,), timeout=PATIENCE)
            if not done:
                # A thread cannot be stopped: the next attempt waits for the same one.
                raise StoreUnavailable("the database does not answer")
            outcome, self._writing = self._writing.result(), None
            self._end(outcome)
            if outcome.outage is not None:
                raise outcome.outage

    def _end(self, outcome: BatchOutcome) -> None:
        for at in range(outcome.ended):
            item, error = self._waiting.popleft(), outcome.refused.get(at)
            self.size -= self._size_of(item)
            if error is not None:
                refuse(self._name, self._describe(item), error)
            self._ended(item, error)

    def _batch(self) -> list[T]:
        batch, size = list[T](), 0
        for item in self._waiting:
            size += self._size_of(item)
            if batch and size > self._most:
                break
            batch.append(item)
        return batch
