"""Imports the spools of a host's processes into the database, and deletes old days, in the background."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Lock

from config.schema.config import Config
from config.schema.telemetry.requests import RequestsConfig
from gateway.features.requests.days import open_days
from gateway.features.requests.lines import MICROS, day_of
from gateway.features.requests.spool import WaitingLine, ended_processes, lines_of, waiting_files
from gateway.features.requests.store import RequestStore
from gateway.features.requests.unrecorded import unrecorded
from gateway.features.usage.writer import UsageWriter
from gateway.features.usage.writer import folder_of as usage_folder_of
from gateway.state.errors import KeysError
from gateway.state.faults import is_outage
from gateway.state.journal import JournalFile
from gateway.state.local_folder import local_folder, prepare_private
from gateway.state.refusals import refuse, write_each

log = logging.getLogger(__name__)
_SWEEP_EVERY = 300.0
_JUMP = 3600.0
"""Seconds by which the clock may differ from the time that has passed. Beyond, no day is deleted for as long."""
_BATCH = 2 * 2**20
"""Bytes of records of one write."""


def folder_of(config: Config) -> Path | None:
    """The folder of the records; None without `requests`."""
    return None if config.requests is None else local_folder(config.state.database, "requests", config.requests.folder)


def spool_of(config: Config) -> Path | None:
    """The folder where records wait; None without `requests`."""
    folder = folder_of(config)
    return None if folder is None else folder / "spool"


def prepare_folder(config: Config) -> None:
    """Create the folder for this user alone. Raises `StartError`."""
    if (folder := folder_of(config)) is not None:
        prepare_private(folder, "requests")


class RequestWriter:
    """`run` until the end, then `aclose`. Without the database the records wait in the spool."""

    def __init__(
        self,
        config: Callable[[], Config],
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        usage: UsageWriter | None = None,
    ) -> None:
        """`usage`: the writer of the usage of the same processes."""
        self.available = True
        """Whether the last transaction succeeded."""
        self.written = 0.0
        """Unix seconds of the last success."""
        self.dropped = 0
        """Records that waited too long, that came after the end of their day's retention, or that were refused."""
        self._config = config
        self._usage = usage
        self._wall = wall
        self._clock = clock
        self._store: RequestStore | None = None
        self._opening = Lock()
        self._offsets: dict[str, int] = {}
        """How much of each file is imported."""
        self._swept: tuple[float, float] | None = None
        """The time of the last sweep, by the wall and by the clock."""
        self._is_full = False
        self._one_at_a_time = asyncio.Lock()

    async def run(self) -> None:
        """Write once a `flush` until cancelled."""
        while True:
            requests = self._config().requests
            await asyncio.sleep(1.0 if requests is None else requests.flush)
            await self.write()

    async def write(self) -> None:
        """Import what waits, and delete the days beyond retention."""
        async with self._one_at_a_time:
            config = self._config()
            if config.requests is None:
                return
            try:
                await asyncio.to_thread(self._write, config, config.requests)
            except (KeysError, OSError) as error:
                if self.available:
                    log.warning("requests: not written, the records wait: %s", error)
                self.available = False
                return
            if not self.available:
                log.warning("requests: written again")
            self.available, self.written = True, self._wall()

    async def store(self) -> RequestStore:
        """The store, for searches. Raises `KeysError`."""
        return await asyncio.to_thread(self._opened)

    async def aclose(self) -> None:
        """Write the rest, and close the database."""
        await self.write()
        if self._store is not None:
            await asyncio.to_thread(self._store.close)
            self._store = None

    def _opened(self) -> RequestStore:
        with self._opening:
            if self._store is None:
                config = self._config()
                folder = folder_of(config)
                assert folder is not None
                self._store = RequestStore(open_days(config.state.database, folder))
            return self._store

    def _write(self, config: Config, requests: RequestsConfig) -> None:
        spool = spool_of(config)
        assert spool is not None
        files = waiting_files(spool)
        self._offsets = {file.source: self._offsets.get(file.source, 0) for file in files}
        try:
            self._sweep(requests)
            self._import(files, requests)
            self._complete(config, requests, spool)
        finally:
            self._bound(files, requests.max_waiting)

    def _complete(self, config: Config, requests: RequestsConfig, spool: Path) -> None:
        """Store the requests of ended processes whose records are lost, once all else of a process is imported."""
        counted = None if self._usage is None else usage_folder_of(config)
        for mark in () if self._is_full else ended_processes(spool):
            process = mark.stem
            if any(spool.glob(f"{process}-*")) or (counted is not None and any(counted.glob(f"{process}-*"))):
                continue  # not all of it is imported
            if counted is not None and self._usage is not None:
                try:
                    self._store_unrecorded(process, self._usage, requests)
                except Exception as error:
                    if is_outage(error):
                        raise
                    refuse("requests", f"the difference of {process}", error)
            mark.unlink(missing_ok=True)

    def _store_unrecorded(self, process: str, usage: UsageWriter, requests: RequestsConfig) -> None:
        counted, recorded = usage.opened().rows_of_process(process), self._opened().recorded(process)
        if lines := unrecorded(counted, recorded, requests.exclude):
            total = sum(line.requests for line in lines)
            log.warning("requests: a process ended without the records of %d requests; their sums are stored", total)
            each = [WaitingLine(end, line) for end, line in enumerate(lines, 1)]
            self._store_each(f"{process}.unrecorded", each, requests)

    def _import(self, files: list[JournalFile], requests: RequestsConfig) -> None:
        for file, lines, is_last in self._parts(files):
            if self._is_full:
                self.dropped += len(lines)
            else:
                self._store_each(file.source, lines, requests)
            if lines:
                self._offsets[file.source] = lines[-1].end
            if is_last and file.is_final:
                file.path.unlink(missing_ok=True)

    def _store_each(self, source: str, lines: Sequence[WaitingLine], requests: RequestsConfig) -> None:
        """Store lines of a file. Raises the error of a database that is away: the same lines come again."""
        oldest, too_old = self._oldest(requests), 0

        def write(some: Sequence[WaitingLine]) -> None:
            nonlocal too_old
            too_old += self._opened().write(source, some, oldest)

        outcome = write_each(lines, write)
        if outcome.outage is not None:
            raise outcome.outage
        for at, error in outcome.refused.items():
            refuse("requests", f"the record of {lines[at].line.id}", error)
        self.dropped += too_old + len(outcome.refused)

    def _parts(self, files: list[JournalFile]) -> Iterator[tuple[JournalFile, list[WaitingLine], bool]]:
        """The new lines in batches, and whether a batch is the file's last."""
        for file in files:
            is_last = False
            while not is_last:
                offset, lines = self._offsets[file.source], list[WaitingLine]()
                try:
                    lines += lines_of(file, offset, _BATCH)
                except FileNotFoundError:  # another writer was faster
                    break
                is_last = not lines or lines[-1].end - offset < _BATCH
                yield file, lines, is_last

    def _bound(self, files: list[JournalFile], most: int) -> None:
        """Delete the oldest files that wait beyond a size. A file of a process that runs stays."""
        waiting = [file for file in files if file.path.exists()]
        size = sum(file.size - self._offsets.get(file.source, 0) for file in waiting)
        for file in waiting:
            if size <= most:
                return
            if file.is_final:
                offset = self._offsets.get(file.source, 0)
                lost = sum(1 for _ in lines_of(file, offset, file.size))
                file.path.unlink(missing_ok=True)
                log.warning("requests: %d records waited beyond `requests.max_waiting` and are lost", lost)
                self.dropped += lost
                size -= file.size - offset

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
        store = self._opened()
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
