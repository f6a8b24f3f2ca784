"""Queues administrative acts for the audit log and writes them in the background."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence

from gateway.auth.audit import Act
from gateway.auth.behind import write_behind
from gateway.auth.errors import KeysError, StoreUnavailable

_log = logging.getLogger(__name__)
MAX_WAITING = 1000
_PATIENCE = 10.0
"""Seconds after which a database that neither answers nor fails counts as unavailable."""

Write = Callable[[Sequence[tuple[float, Act]]], None]


class Trail:
    """Acts wait in memory while the database is unavailable, and a thread writes them, in order.

    Each act is logged too, so that a lost one (more than `MAX_WAITING` wait, or the process ends while the database is
    unavailable) is at least in the log. `lost` counts them.
    """

    def __init__(self, write: Write) -> None:
        """`write` blocks. If it raises `KeysError`, it has written nothing."""
        self._write = write
        self._waiting: deque[tuple[float, Act]] = deque()
        self._noted = asyncio.Event()
        self._writing: asyncio.Task[int] | None = None
        self._away = False
        self.lost = 0

    def note(self, act: Act) -> None:
        """Queue one act. Never blocks."""
        _log.info("audit: %s %s %s by %s", act.action, act.target, act.outcome, act.actor.id)
        if len(self._waiting) >= MAX_WAITING:
            self.lost += 1
            _log.error("audit: the database was unavailable for too long; this act is recorded in this log only")
            return
        self._waiting.append((time.time(), act))
        self._noted.set()

    async def run(self) -> None:
        """Write until cancelled."""
        await write_behind(self._noted, self._write_out, self._report_unavailable)

    async def aclose(self) -> None:
        """One last attempt to write the queued acts."""
        try:
            while self._waiting:
                await self._write_out()
        except KeysError as error:
            self.lost += len(self._waiting)
            _log.error("audit: %d acts are recorded in this log only: %s", len(self._waiting), error)

    async def _write_out(self) -> None:
        if self._writing is None:
            self._writing = asyncio.create_task(asyncio.to_thread(self._write_batch, tuple(self._waiting)))
        done, _ = await asyncio.wait((self._writing,), timeout=_PATIENCE)
        if not done:
            # A thread cannot be stopped: the next attempt waits for the same one.
            raise StoreUnavailable("the key database does not answer")
        writing, self._writing = self._writing, None
        for _ in range(writing.result()):
            self._waiting.popleft()
        self._away = False

    def _write_batch(self, batch: Sequence[tuple[float, Act]]) -> int:
        self._write(batch)
        return len(batch)

    def _report_unavailable(self, error: KeysError) -> None:
        if not self._away:
            _log.warning("%s; the audit log is written when it answers", error)
        self._away = True
