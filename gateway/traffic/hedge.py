"""A second attempt at another endpoint while the first has not begun to answer."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from adapters.base import Answer, Upstream
from adapters.call import Call
from adapters.errors import InferenceError
from adapters.requests import ExplainRequest, ModelQuery, ModelRequest
from gateway.traffic.endpoint import RefusalKey, subject_of
from policies.hedge import Patience
from policies.retry import RetryBudget


class Spares(Upstream, Protocol):
    """An upstream that reports whether another endpoint is free."""

    name: str

    def spare(self, subject: RefusalKey, tried: Sequence[str]) -> bool:
        """Whether an endpoint outside `tried` has a free slot now."""
        ...


class Hedge:
    """An `Upstream` that sends a late request to another endpoint of its pool as well.

    The first answer to begin wins, and is the only one that is charged; the others are cancelled. An answer that has
    begun is never hedged. A request that waits for an endpoint is not hedged either, as the hedge would wait too.
    Explanations pass: each takes as long as hundreds of predictions, so a hedge would cost as much again. Queries about
    a model pass too: a server answers them at once, without the model. Neither has a part in the measured delays and in
    the budget of the predictions of their route.
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
        if isinstance(request, ExplainRequest | ModelQuery):
            return await self.pool.call(request, call)
        self._budget.request(self.clock())
        seconds = self.patience.seconds(stream=request.stream)
        if seconds is not None and call.repeatable and call.relay is None and not request.sequence:
            return await _Race(self, request, call, seconds).run()
        answer = await self.pool.call(request, call)
        if call.sent_at is not None:
            self.patience.observe(self.clock() - call.sent_at, stream=request.stream)
        return answer

    def grants(self, hedges: int, request: ModelRequest, call: Call) -> bool:
        """Whether one more hedge is allowed, possible and affordable; if so, the budget pays for it."""
        subject = subject_of(request, call)
        return hedges < self._most and self.pool.spare(subject, call.tried) and self._budget.allow(self.clock())


class _Attempt:
    """One of the attempts that race."""

    def __init__(self, race: "_Race") -> None:
        self.call = race.call.attempt()
        answer = race.hedge.pool.call(race.request, self.call)
        self.task: asyncio.Task[Answer] = asyncio.get_running_loop().create_task(answer)

    @property
    def waits(self) -> bool:
        """Whether the attempt has no endpoint yet."""
        return self.call.sent_at is None

    def drop(self) -> None:
        """Cancel the attempt."""
        self.task.cancel()
        self.task.add_done_callback(_release)


class _Race:
    """One request's attempts, oldest first."""

    def __init__(self, hedge: Hedge, request: ModelRequest, call: Call, seconds: float) -> None:
        self.hedge = hedge
        self.request = request
        self.call = call
        self._seconds = seconds
        self._all = [_Attempt(self)]

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
            self.call.trace.event("hedge_win", self.hedge.pool.name)
        return winner.task.result()

    async def _winner(self) -> _Attempt:
        """The first attempt that begins. Raises an error that cannot be retried at once, else the last one."""
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
                if self.hedge.grants(len(self._all) - 1, self.request, self.call):
                    self.call.trace.event("hedge", self.hedge.pool.name)
                    self._all.append(attempt := _Attempt(self))
                    running[attempt.task] = attempt
                else:
                    patience = None

    async def _stop(self) -> None:
        """Cancel all attempts, after a failure or a cancellation, and wait until they have released everything."""
        for attempt in self._all:
            attempt.drop()
        await asyncio.wait([attempt.task for attempt in self._all])

    def _learn(self, winner: _Attempt) -> None:
        """Observe the time of the first attempt even if it lost: otherwise no endpoint would seem slow."""
        first, hedge = self._all[0], self.hedge
        if first.call.sent_at is not None and (first is winner or not first.task.done()):
            hedge.patience.observe(hedge.clock() - first.call.sent_at, stream=self.request.stream)


def _release(task: asyncio.Task[Answer]) -> None:
    """Close the answer of a cancelled attempt that began at the same time as the winner."""
    if not task.cancelled() and task.exception() is None:
        closing = asyncio.get_running_loop().create_task(task.result().aclose())
        _CLOSING.add(closing)
        closing.add_done_callback(_CLOSING.discard)


_CLOSING: set[asyncio.Task[None]] = set()
