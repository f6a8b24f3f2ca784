"""Writes the counters of a host's processes to the state database, in the background."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from config.schema.config import Config
from gateway.features.usage.files import CountedFile, read_files
from gateway.features.usage.labels import HOUR, UsageRow, day_of
from gateway.features.usage.store import UsageStore
from gateway.state.insist import Outages
from gateway.state.local_folder import local_folder, prepare_private
from gateway.state.opened import Opened
from gateway.state.refusals import refuse, write_each
from gateway.state.rounds import Rounds

_SUM_EVERY = 600.0


def folder_of(config: Config) -> Path | None:
    """The folder of the counters; None without `usage`."""
    return None if config.usage is None else local_folder(config.state.database, "usage", config.usage.folder)


def prepare_folder(config: Config) -> None:
    """Create the folder for this user alone. Raises `StartError`."""
    if (folder := folder_of(config)) is not None:
        prepare_private(folder, "usage")


class UsageWriter:
    """`run` until the end, then `aclose`. Without the database the files wait on disk."""

    def __init__(
        self, config: Callable[[], Config], pepper: Callable[[], bytes], wall: Callable[[], float] = time.time
    ) -> None:
        self.written = 0.0
        """Unix seconds of the last success."""
        self._config = config
        self._pepper = pepper
        self._wall = wall
        self.opened = Opened(lambda: UsageStore(self._config().state.database, self._pepper(), self._wall))
        """The store."""
        self._stored: dict[str, dict[int, tuple[int, ...]]] = {}
        """The counters in the database, by file and slot."""
        self._summed_at = 0.0
        outages = Outages("usage", meanwhile="the counters stay in their files")
        self.write = Rounds(outages, "writing", self._round, self._pause)
        """Writes what has changed, and sums the days that have ended."""

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
        usage = self._config().usage
        return 2.0 if usage is None else usage.flush

    async def _round(self) -> None:
        config = self._config()
        if config.usage is not None:
            await asyncio.to_thread(self._write, config)
            self.written = self._wall()

    def _write(self, config: Config) -> None:
        usage, folder, now = config.usage, folder_of(config), self._wall()
        assert usage is not None
        assert folder is not None
        oldest = int(now - usage.hours) // HOUR
        files = list(read_files(folder))
        present = {file.source for file in files}  # another writer of the host may have deleted some
        self._stored = {source: stored for source, stored in self._stored.items() if source in present}
        changed = [(file, row) for file in files for row in self._changed(file)]
        outcome = write_each(changed, lambda some: self.opened().write(some, oldest))
        for at, (file, row) in enumerate(changed[: outcome.ended]):
            self._stored.setdefault(file.source, {})[row.slot] = row.counters
            if at in outcome.refused:
                refuse("usage", f"the slot {row.slot} of {file.source}", outcome.refused[at])
        if outcome.outage is not None:
            raise outcome.outage
        for file in files:
            if file.is_final:  # nobody counts in it any more
                file.path.unlink(missing_ok=True)
                self._stored.pop(file.source, None)
        if now - self._summed_at >= _SUM_EVERY or now < self._summed_at:
            self._summed_at = now  # also after an error of one day, which would stop the next writes too
            self.opened().sum_days(oldest, day_of(int(now - usage.days) // HOUR))

    def _changed(self, file: CountedFile) -> list[UsageRow]:
        stored = self._stored.get(file.source, {})
        return [row for row in file.rows if stored.get(row.slot) != row.counters and any(row.counters)]
