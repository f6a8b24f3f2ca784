"""A second attempt elsewhere while the first has not begun."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from adapters.base import Answer, Upstream
from adapters.call import Call
from adapters.errors import InferenceError
from adapters.types import ModelRequest
from policies.hedge import Patience
from policies.retry import RetryBudget


class Spares(Upstream, Protocol):
    """An upstream that knows whether it has somebody else to ask."""

    name: str

    def spare(self, tenant: str, tried: Sequence[str]) -> bool:
        """Whether an endpoint that is not among `tried` could be asked now."""
        ...


class Hedge:
    """An `Upstream` that asks another endpoint of its pool as well when an answer is late to begin.

    The first to begin is the answer, and the only one that is charged; the others are cancelled. Nothing that
    has begun is ever hedged, nor a request that still waits for an endpoint: there a hedge would wait too.
    """

    def __init__(
        self, pool: Spares, *, patience: Patience, most: int, budget: RetryBudget, clock: Callable[[], float]
    ) -> None:
        self.pool = pool
        self.patience = patience
        self._most = most
        self._budget = budget
        self.clock = clock

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        self._budget.request(self.clock())
        seconds = self.patience.seconds(stream=request.stream)
        if seconds is not None and request.repeatable and not request.sequence:
            return await _Race(self, request, call, seconds).run()
        before = request.upstream_seconds
        answer = await self.pool.call(request, call)
        self.patience.observe(request.upstream_seconds - before, stream=request.stream)
        return answer

    def grants(self, hedges: int, tenant: str, tried: Sequence[str]) -> bool:
        """Whether one more is allowed, possible and affordable; if so it is spent."""
        return hedges < self._most and self.pool.spare(tenant, tried) and self._budget.allow(self.clock())


class _Attempt:
    """One of those that race, with a copy of the request, so that they do not write into each other's."""

    def __init__(self, race: "_Race", tried: tuple[str, ...]) -> None:
        hedge = race.hedge
        self.began = hedge.clock()
        self.request = replace(race.request, tried=tried, upstream_seconds=0.0)
        self._tried = tried
        call = hedge.pool.call(self.request, race.deadline)
        self.task: asyncio.Task[Answer] = asyncio.get_running_loop().create_task(call)

    @property
    def waits(self) -> bool:
        """It has no endpoint yet."""
        return self.request.tried == self._tried

    def drop(self) -> None:
        """It is not wanted any more."""
        self.task.cancel()
        self.task.add_done_callback(_release)


class _Race:
    """One request's attempts, oldest first."""

    def __init__(self, hedge: Hedge, request: ModelRequest, call: Call, seconds: float) -> None:
        self.hedge = hedge
        self.request = request
        self.deadline = call
        self._seconds = seconds
        self._all = [_Attempt(self, request.tried)]

    async def run(self) -> Answer:
        try:
            winner = await self._winner()
        except BaseException:
            await self._stop()
            raise
        for attempt in self._all:
            if attempt is not winner:
                attempt.drop()
        self._learn(winner)
        if winner is not self._all[0]:
            self.request.events += (("hedge_win", self.hedge.pool.name),)
        self._note(winner)
        return winner.task.result()

    async def _winner(self) -> _Attempt:
        """The first that begins. What nobody else may answer is raised at once, else the last failure."""
        running = {self._all[0].task: self._all[0]}
        patience: float | None = self._seconds
        while True:
            done, _ = await asyncio.wait(running, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            for task in [task for task in running if task in done]:
                error = task.exception()
                if error is None:
                    return running[task]
                del running[task]
                if not running or not (isinstance(error, InferenceError) and error.retryable):
                    raise error
            if not done and not self._all[-1].waits:
                if self.hedge.grants(len(self._all) - 1, self.request.tenant, tried := self._tried()):
                    self.request.events += (("hedge", self.hedge.pool.name),)
                    self._all.append(attempt := _Attempt(self, tried))
                    running[attempt.task] = attempt
                else:
                    patience = None

    async def _stop(self) -> None:
        """It has failed, or the client left: wait until what the attempts held is released."""
        for attempt in self._all:
            attempt.drop()
        await asyncio.wait([attempt.task for attempt in self._all])
        self._note(max(self._all, key=lambda attempt: attempt.request.upstream_seconds))

    def _tried(self) -> tuple[str, ...]:
        """Everybody who was asked, by any of them."""
        return tuple(dict.fromkeys(id_ for attempt in self._all for id_ in attempt.request.tried))

    def _note(self, decisive: _Attempt) -> None:
        """What became of the attempts, in the request itself."""
        self.request.tried = self._tried()
        self.request.queue_seconds = decisive.request.queue_seconds
        self.request.upstream_seconds += decisive.began - self._all[0].began + decisive.request.upstream_seconds

    def _learn(self, winner: _Attempt) -> None:
        """How long the first took, or was given: without those that lost, nobody would seem to be slow."""
        first = self._all[0]
        if first is winner or not first.task.done():
            seconds = first.request.upstream_seconds or self.hedge.clock() - first.began
            self.hedge.patience.observe(seconds, stream=self.request.stream)


def _release(task: asyncio.Task[Answer]) -> None:
    """The end of one that was dropped. One that began in the winner's own moment is closed."""
    if not task.cancelled() and task.exception() is None:
        closing = asyncio.get_running_loop().create_task(task.result().aclose())
        _CLOSING.add(closing)
        closing.add_done_callback(_CLOSING.discard)


_CLOSING: set[asyncio.Task[None]] = set()
