"""Work on the state database that is repeated once a period."""

import asyncio
from collections.abc import Awaitable, Callable

from gateway.state.errors import StoreUnavailable
from gateway.state.insist import Outages

PATIENCE = 10.0
"""Seconds for which a start waits for a database that neither answers nor fails."""


class Rounds:
    """Call it for one round; `run` until cancelled. One round runs at a time.

    An outage ends a round: what was to be done waits for a later one.
    """

    def __init__(
        self,
        outages: Outages,
        part: str,
        work: Callable[[], Awaitable[object]],
        period: Callable[[], float],
        *,
        at_once: bool = False,
    ) -> None:
        """`part` names the work in the log; `period` is in seconds. `at_once`: the first round has no pause before."""
        self.outages = outages
        self._part = part
        self._work = work
        self._period = period
        self._at_once = at_once
        self._one_at_a_time = asyncio.Lock()
        self._first: asyncio.Future[None] | None = None

    async def run(self) -> None:
        """One round after each period."""
        if self._at_once:
            await self()
        while True:
            await asyncio.sleep(self._period())
            await self()

    async def within(self, seconds: float) -> None:
        """One round, for a start that does not wait longer. It continues after that, and no error ends the start."""
        self._first = asyncio.ensure_future(self())
        done, _ = await asyncio.wait((self._first,), timeout=seconds)
        error = self._first.exception() if done else StoreUnavailable("the database does not answer")
        if isinstance(error, Exception):
            self.outages.failed(self._part, error)

    async def __call__(self) -> None:
        async with self._one_at_a_time:
            with self.outages.noting(self._part):
                await self._work()
