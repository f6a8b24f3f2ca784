"""Adds the usage in the journals of a host's processes to the state database, in the background."""

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TypeVar

from config.schema.config import Config
from config.schema.telemetry import UsageConfig
from gateway.features.journal.files import WaitingFiles, WaitingLine
from gateway.features.journal.folders import usage_folder
from gateway.features.usage.charges import currency_of
from gateway.features.usage.earlier import counted_files
from gateway.features.usage.labels import HOUR, day_of
from gateway.features.usage.store import UsageStore
from gateway.state.insist import Outages
from gateway.state.opened import Opened
from gateway.state.refusals import refuse, write_each
from gateway.state.rounds import Rounds

T = TypeVar("T")
_SUM_EVERY = 600.0


class UsageWriter:
    """`run` until the end, then `aclose`. Without the database the files wait on disk."""

    def __init__(
        self,
        config: Callable[[], Config],
        pepper: Callable[[], bytes],
        files: WaitingFiles,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`files`: the journals of the host."""
        self.written = 0.0
        """Unix seconds of the last success."""
        self._config = config
        self._pepper = pepper
        self._files = files
        self._wall = wall
        self.opened = Opened(lambda: UsageStore(self._config().state.database, self._pepper(), self._wall))
        """The store."""
        self._summed_at = 0.0
        outages = Outages("usage", meanwhile="the requests stay in their journals")
        self.write = Rounds(outages, "writing", self._round, self._pause)
        """Adds what is new, also after a reload has removed `usage`, and sums the days that have ended."""

    @property
    def available(self) -> bool:
        """Whether the last transaction succeeded."""
        return self.write.outages.available

    async def run(self) -> None:
        """Write once a `flush` until cancelled."""
        await self.write.run()

    async def store(self) -> UsageStore:
        """The store, for reports. Raises `StateError`."""
        return await asyncio.to_thread(self.opened)

    async def aclose(self) -> None:
        """Write the rest, and close the database."""
        await self.write()
        await asyncio.to_thread(self.opened.close)

    def _pause(self) -> float:
        return (self._config().usage or UsageConfig()).flush

    async def _round(self) -> None:
        await asyncio.to_thread(self._write, self._config())
        self.written = self._wall()

    def _write(self, config: Config) -> None:
        usage, now = config.usage or UsageConfig(), self._wall()
        oldest = int(now - usage.hours) // HOUR
        try:
            for file, waiting in self._files.parts("usage", self._lost):
                lines = [each for each in waiting if each.line.counted or each.line.draws]
                _import(file.source, lines, partial(self._add, file.source, oldest, currency_of(config), usage.users))
            for counted in counted_files(usage_folder(config)):
                rows = [counted._replace(rows=[row]) for row in counted.rows]
                _import(counted.file.source, rows, lambda some: self.opened().write(some, oldest))
                if counted.file.is_final:  # nobody counts in it any more
                    counted.file.path.unlink(missing_ok=True)
        finally:
            if config.requests is None:
                self._files.bound()
        # Also after an error of one day, which would stop the next writes too.
        if config.usage is not None and (now - self._summed_at >= _SUM_EVERY or now < self._summed_at):
            self._summed_at = now
            self.opened().sum_days(oldest, day_of(int(now - usage.days) // HOUR))

    def _lost(self, present: Collection[str]) -> set[str]:
        return self.opened().lost(present)

    def _add(self, source: str, oldest: int, currency: str, users: int, lines: Sequence[WaitingLine]) -> None:
        self.opened().add(source, lines, oldest, currency, users)


def _import(source: str, items: Sequence[T], write: Callable[[Sequence[T]], None]) -> None:
    """Write the items of a file. Raises the error of a database that is away: the same items come again."""
    outcome = write_each(items, write)
    if outcome.outage is not None:
        raise outcome.outage
    for error in outcome.refused.values():
        refuse("usage", f"an item of {source}", error)
