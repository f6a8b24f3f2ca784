"""Lets the limits of one process follow what the state database has recorded, in the background."""

import asyncio
import time
from collections.abc import Callable

from config.schema.config import Config
from gateway.features.usage.draws import ReadDraws
from gateway.features.usage.store import UsageStore
from gateway.limits.ledger import Ledger
from gateway.state.insist import Outages
from gateway.state.opened import Opened
from gateway.state.rounds import PATIENCE, Rounds

READ_EVERY = 2.0
"""Seconds between two reads."""
READ_ALL = 300.0
"""Seconds after which all is read again: a restored database may have the same versions for other sums."""


class BudgetReader:
    """`read` before the first request, `run` until cancelled, then `aclose`. No request waits for it."""

    def __init__(
        self,
        config: Callable[[], Config],
        pepper: Callable[[], bytes],
        ledger: Ledger,
        clock: Callable[[], float],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._wall = wall
        self._version = 0
        self._whole_at = clock()
        self._opened = Opened(lambda: UsageStore(config().state.database, pepper(), wall))
        meanwhile = "limits of this host count without what other hosts, and earlier processes, have recorded since"
        self._rounds = Rounds(Outages("limits", meanwhile=meanwhile), "reading usage", self._read, lambda: READ_EVERY)

    async def run(self) -> None:
        """Read again and again."""
        await self._rounds.run()

    async def read(self) -> None:
        """Read once, for a bounded time. An outage is logged: then limits begin at zero, and follow when it ends."""
        await self._rounds.within(PATIENCE)

    async def aclose(self) -> None:
        """Close the database."""
        await asyncio.to_thread(self._opened.close)

    async def _read(self) -> None:
        if not self._ledger.follows:
            return
        now = self._clock()
        if now - self._whole_at >= READ_ALL:
            self._version = 0
        read = await asyncio.to_thread(self._changes, self._version)
        if read.is_whole:
            self._whole_at = now
        take = self._ledger.drawn.replace if read.is_whole else self._ledger.drawn.put
        take(read.draws, self._clock(), self._wall())
        self._version = read.version

    def _changes(self, after: int) -> ReadDraws:
        return self._opened().draws(after)
