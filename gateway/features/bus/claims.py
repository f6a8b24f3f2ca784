"""Claims of ids: this process works on a message only while it holds the claim of its id."""

from collections.abc import Callable, Sequence

from gateway.features.bus.done.table import MINE, DoneTable
from gateway.features.bus.work import MessageWork
from gateway.state.insist import Insistence

PART = "the table of ids"
FRESH = 0.5
"""The share of `takeover` in which a claim is surely this process's."""


class Claims:
    """The claims of one binding."""

    def __init__(self, table: DoneTable, insist: Insistence, takeover: float, now: Callable[[], float]) -> None:
        self.table = table
        self._insist = insist
        self._fresh = FRESH * takeover
        self._now = now

    async def claim(self, works: Sequence[MessageWork]) -> list[float]:
        """Claim the ids of messages. For each: `MINE`, `DONE`, or the seconds of the claim of another process."""
        if not works:
            return []
        begun, ids = self._now(), [work.id for work in works]
        standings = await self._insist(PART, lambda: self.table.claim(ids))
        for work, standing in zip(works, standings, strict=True):
            if standing == MINE:
                work.renewed_at = begun
        return standings

    async def renew(self, works: Sequence[MessageWork]) -> list[MessageWork]:
        """Renew claims. Returns the messages whose claim another process has taken."""
        if not works:
            return []
        begun, ids = self._now(), [work.id for work in works]
        mine = await self._insist(PART, lambda: self.table.renew(ids))
        for work, is_mine in zip(works, mine, strict=True):
            if is_mine:
                work.renewed_at = begun
        return [work for work, is_mine in zip(works, mine, strict=True) if not is_mine]

    async def lost(self, works: Sequence[MessageWork]) -> list[MessageWork]:
        """The messages whose claims have passed to another process, as after a long pause of this process."""
        now = self._now()
        return await self.renew([work for work in works if now - work.renewed_at > self._fresh])

    async def finish(self, works: Sequence[MessageWork]) -> None:
        """Store that messages are answered."""
        if works:
            ids = [work.id for work in works]
            await self._insist(PART, lambda: self.table.finish(ids))
