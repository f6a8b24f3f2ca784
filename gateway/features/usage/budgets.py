"""Lets the limits of one process follow what the state database has recorded, in the background."""

import asyncio
import time
from collections.abc import Callable
from math import inf

from config.schema.config import Config
from gateway.features.usage.draws import ReadDraws
from gateway.features.usage.store import UsageStore
from gateway.limits.ledger import Ledger
from gateway.limits.long_limits import LongLimits
from gateway.state.insist import Outages
from gateway.state.opened import Opened
from gateway.state.rounds import PATIENCE, Rounds

READ_EVERY = 2.0
"""Seconds between two reads."""
AGAIN = 4.0
"""Seconds until what was used before a new limit is counted again; then twice as long each time."""
LONGEST_PAUSE = 300.0
"""Seconds that these pauses never exceed: a request that ends late is not missing for longer."""
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
        self._next: LongLimits | None = None
        self._begun: LongLimits | None = None
        """The limits whose begin is in the database."""
        self._again_at, self._pause = 0.0, AGAIN
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

    async def begin(self, limits: LongLimits) -> None:
        """Let the limits of a configuration that comes into force next begin with the recorded usage. For a bounded
        time; in an outage they begin at zero, and follow when it ends."""
        if limits != self._begun:
            self._next = limits
            try:
                await self._rounds.within(PATIENCE)
            finally:
                self._next = None

    async def aclose(self) -> None:
        """Close the database."""
        await asyncio.to_thread(self._opened.close)

    async def _read(self) -> None:
        limits = self._ledger.long if self._next is None else self._next
        if not (limits.limits or (self._begun is not None and self._begun.limits)):
            return
        now = self._clock()
        if limits != self._begun or now >= self._again_at:
            await self._begin(limits, now)
        if now - self._whole_at >= READ_ALL:
            self._version = 0
        read = await asyncio.to_thread(self._changes, self._version)
        if read.is_whole:
            self._whole_at = now
        take = self._ledger.drawn.replace if read.is_whole else self._ledger.drawn.put
        take(read.draws, self._clock(), self._wall())
        self._version = read.version

    async def _begin(self, limits: LongLimits, now: float) -> None:
        is_open = await asyncio.to_thread(lambda: self._opened().begin(limits))
        self._pause = AGAIN if limits != self._begun else min(2 * self._pause, LONGEST_PAUSE)
        self._begun, self._again_at = limits, now + self._pause if is_open else inf

    def _changes(self, after: int) -> ReadDraws:
        return self._opened().draws(after)
