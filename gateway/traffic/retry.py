"""Retries a request if a retry can help and the budget allows it."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random

from adapters.base import Answer, Upstream
from adapters.call import Call
from adapters.errors import InferenceError, Resting, Unavailable
from adapters.requests import ModelRequest
from gateway.traffic.endpoint import RefusalKey, subject_of
from gateway.traffic.fallback import may_be_computed
from policies.retry import RetryBudget, backoff, rested


class Retry:
    """An `Upstream` that calls another one up to `attempts` times.

    Only failures before the first chunk are raised here, so nothing is answered twice. A `patient` retry, which has no
    fallback behind it, waits once for the pause that every endpoint requires.
    """

    def __init__(
        self,
        upstream: Upstream,
        pool: str,
        *,
        attempts: int,
        base: float,
        budget: RetryBudget,
        rng: Random,
        clock: Callable[[], float],
        patient: bool = False,
        again: bool = False,
        spare: Callable[[RefusalKey, Sequence[str]], bool] | None = None,
    ) -> None:
        self._patient = patient
        self._again = again
        """Whether a request may be sent again while a silent server may still compute it."""
        self._spare = spare
        """Whether the pool has a free, untried endpoint for such a request."""
        self._upstream = upstream
        self._pool = pool
        self._attempts = attempts
        self._base = base
        self._budget = budget
        self._rng = rng
        self._clock = clock

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        self._budget.request(self._clock())
        attempt, patient = 1, self._patient
        attempts = 1 if request.sequence else self._attempts
        while True:
            try:
                return await self._upstream.call(request, call)
            except Resting as error:
                pause = rested(error.retry_after, self._rng)
                if not patient or pause is None or self._clock() + pause >= call.deadline.at:
                    raise
                patient = False  # no endpoint was called, so this does not count as an attempt
            except InferenceError as error:
                if attempt >= attempts or not self._may_help(error, request, call) or not call.again_after(error):
                    raise
                now = self._clock()
                pause = backoff(attempt, self._base, self._rng)
                if now + pause >= call.deadline.at or not self._budget.allow(now):
                    raise
                attempt += 1
                call.trace.event("retry", self._pool)
            await asyncio.sleep(pause)

    def _may_help(self, error: InferenceError, request: ModelRequest, call: Call) -> bool:
        """Whether an attempt may succeed. A pool without an eligible endpoint needs a fallback, not a retry."""
        if not self._again and may_be_computed(request, error):
            return False
        if not error.retryable or (isinstance(error, Unavailable) and not error.elsewhere_only):
            return False
        return not error.elsewhere_only or self._spare is None or self._spare(subject_of(request, call), call.tried)
