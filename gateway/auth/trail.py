"""Queues administrative acts for the audit log and writes them in the background."""

import logging
import time
from collections.abc import Callable, Sequence

from gateway.auth.audit import Act
from gateway.state.behind import WriteBehind

_log = logging.getLogger(__name__)
MAX_WAITING = 1000

Write = Callable[[Sequence[tuple[float, Act]]], None]


class Trail:
    """Acts wait in memory while the database is unavailable, and a thread writes them, in order.

    Each act is logged too, so that a lost one (more than `MAX_WAITING` wait, the process ends while the database is
    unavailable, or the database refuses it) is at least in the log. `lost` counts them.
    """

    def __init__(self, write: Write) -> None:
        """`write` blocks. If it raises an error, it has written nothing."""
        self._behind = WriteBehind(
            "audit", write, ended=self._ended, describe=lambda timed: f"{timed[1].action} {timed[1].target}"
        )
        self.lost = 0

    def note(self, act: Act) -> None:
        """Queue one act. Never blocks."""
        _log.info("audit: %s %s %s by %s", act.action, act.target, act.outcome, act.actor.id)
        if len(self._behind) >= MAX_WAITING:
            self.lost += 1
            _log.error("audit: the database was unavailable for too long; this act is recorded in this log only")
            return
        self._behind.put((time.time(), act))

    async def run(self) -> None:
        """Write until cancelled."""
        await self._behind.run()

    async def aclose(self) -> None:
        """One last attempt to write the queued acts."""
        self.lost += await self._behind.aclose()

    def _ended(self, timed: tuple[float, Act], error: Exception | None) -> None:
        self.lost += error is not None
