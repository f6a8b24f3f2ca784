"""Imports the journals of a host's processes into the database, and deletes old days, in the background."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence

from config.schema.config import Config
from config.schema.telemetry import RequestsConfig
from gateway.features.journal.files import WaitingFiles, WaitingLine
from gateway.features.journal.folders import requests_folder, spool_of
from gateway.features.journal.lines import MICROS, day_of
from gateway.features.requests.days import open_days
from gateway.features.requests.store import RequestStore
from gateway.state.insist import Outages
from gateway.state.journal import journals
from gateway.state.opened import Opened
from gateway.state.refusals import refuse, write_each
from gateway.state.rounds import Rounds

log = logging.getLogger(__name__)
_SWEEP_EVERY = 300.0
_JUMP = 3600.0
"""Seconds by which the clock may differ from the time that has passed. Beyond, no day is deleted for as long."""
_EARLIER_MARK = ".process"
"""The files by which earlier releases compared records with usage."""


class RequestWriter:
    """`run` until the end, then `aclose`. Without the database the records wait in the journals."""

    def __init__(
        self,
        config: Callable[[], Config],
        files: WaitingFiles,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`files`: the journals of the host."""
        self.written = 0.0
        """Unix seconds of the last success."""
        self.dropped = 0
        """Records that waited too long, that came after the end of their day's retention, or that were refused."""
        self._config = config
        self._files = files
        self._wall = wall
        self._clock = clock
        self._store = Opened(self._open)
        self._swept: tuple[float, float] | None = None
        """The time of the last sweep, by the wall and by the clock."""
        self._is_full = False
        outages = Outages("requests", meanwhile="the records stay in the journals")
        self.write = Rounds(outages, "writing", self._round, self._pause)
        """Imports what waits, and deletes the days beyond retention."""

    @property
    def available(self) -> bool:
        """Whether the last transaction succeeded."""
        return self.write.outages.available

    async def run(self) -> None:
        """Write once a `flush` until cancelled."""
        await self.write.run()

    async def store(self) -> RequestStore:
        """The store, for searches. Raises `StateError`."""
        return await asyncio.to_thread(self._store)

    async def aclose(self) -> None:
        """Write the rest, and close the database."""
        await self.write()
        await asyncio.to_thread(self._store.close)

    def _open(self) -> RequestStore:
        config = self._config()
        return RequestStore(open_days(config.state.database, requests_folder(config)))

    def _pause(self) -> float:
        return (self._config().requests or RequestsConfig()).flush

    async def _round(self) -> None:
        config = self._config()
        if config.requests is not None:
            await asyncio.to_thread(self._write, config, config.requests)
            self.written = self._wall()

    def _write(self, config: Config, requests: RequestsConfig) -> None:
        try:
            self._sweep(requests)
            for file, waiting in self._files.parts("requests", self._lost):
                lines = [each for each in waiting if each.line.detail]
                if self._is_full:
                    self.dropped += len(lines)
                else:
                    self._store_each(file.source, lines, requests)
        finally:
            if lost := self._files.bound():
                log.warning("requests: %d records waited beyond `requests.max_waiting` and are lost", lost)
            self.dropped += lost
        for mark in journals(spool_of(config), _EARLIER_MARK):
            if mark.is_final:
                mark.path.unlink(missing_ok=True)

    def _lost(self, present: Collection[str]) -> set[str]:
        return self._store().lost(present)

    def _store_each(self, source: str, lines: Sequence[WaitingLine], requests: RequestsConfig) -> None:
        """Store lines of a file. Raises the error of a database that is away: the same lines come again."""
        oldest, too_old = self._oldest(requests), 0

        def write(some: Sequence[WaitingLine]) -> None:
            nonlocal too_old
            too_old += self._store().write(source, some, oldest)

        outcome = write_each(lines, write)
        if outcome.outage is not None:
            raise outcome.outage
        for at, error in outcome.refused.items():
            refuse("requests", f"the record of {lines[at].line.id}", error)
        self.dropped += too_old + len(outcome.refused)

    def _oldest(self, requests: RequestsConfig) -> str:
        return day_of(int((self._wall() - requests.retention) * MICROS))

    def _sweep(self, requests: RequestsConfig) -> None:
        """Delete days beyond retention and size. A clock that has jumped deletes nothing for some time."""
        now, clock = self._wall(), self._clock()
        swept = self._swept
        if swept is not None:
            wall_passed, passed = now - swept[0], clock - swept[1]
            if passed < (_JUMP if abs(wall_passed - passed) > _JUMP else _SWEEP_EVERY):
                return
        store = self._store()
        sizes = store.days.sizes()
        oldest = self._oldest(requests)
        days = list(sizes)
        while days and days[-1] < oldest:
            store.days.drop(days.pop())
        while len(days) > 1 and sum(sizes[day] for day in days) > requests.max:
            log.warning("requests: %s is deleted: all days have more bytes than `requests.max`", days[-1])
            store.days.drop(days.pop())
        is_full = sum(sizes[day] for day in days) > requests.max
        if is_full and not self._is_full:
            log.warning("requests: records are lost: today has more bytes than `requests.max`")
        self._is_full, self._swept = is_full, (now, clock)
