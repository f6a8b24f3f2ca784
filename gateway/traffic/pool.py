"""A set of endpoints that serve the same thing: filter, pick, lease, call."""

from collections.abc import Callable, Sequence
from random import Random

from adapters.base import Answer
from adapters.errors import Resting, Unavailable
from adapters.types import Deadline, GenerateRequest
from gateway.traffic.endpoint import Endpoint
from policies.balance import Picker
from policies.health import panics

RETRY_AFTER = 1.0


class Pool:
    """An `Upstream` over its endpoints. The names in `Unavailable` are the pool's, never an address."""

    def __init__(
        self,
        name: str,
        endpoints: list[Endpoint],
        picker: Picker,
        *,
        max_in_flight: int,
        panic: float = 0.0,
        rng: Random,
        clock: Callable[[], float],
    ) -> None:
        self.name = name
        self.endpoints = endpoints
        self._picker = picker
        self._max_in_flight = max_in_flight
        self._panic = panic
        self._rng = rng
        self._clock = clock

    async def call(self, request: GenerateRequest, deadline: Deadline) -> Answer:
        started = self._clock()
        # No await between these two: a burst must not see the same endpoint idle.
        endpoint = self._pick(request, started)
        request.tried += (endpoint.id,)
        endpoint.begin(started)
        try:
            answer = await endpoint.adapter.call(request, deadline)
        except BaseException as error:
            now = self._clock()
            request.upstream_seconds += now - started
            endpoint.failed_to_begin(error, now - started, now)
            raise
        now = self._clock()
        request.upstream_seconds += now - started
        endpoint.latency.answered(now - started, now)
        answer.pool = self.name
        answer.endpoint = endpoint.id
        answer.when_ended(lambda _, error: endpoint.end(error, self._clock()))
        return answer

    def spare(self, tried: Sequence[str]) -> bool:
        """Whether an endpoint that is not among `tried` could be asked now."""
        now, limit = self._clock(), self._max_in_flight
        return any(e.id not in tried and e.in_flight < limit and e.breaker.allows(now) for e in self._alive())

    def _pick(self, request: GenerateRequest, now: float) -> Endpoint:
        limit, tried = self._max_in_flight, request.tried
        alive = self._alive()
        ready = [e for e in alive if e.in_flight < limit and e.breaker.allows(now)]
        if tried:
            ready = [e for e in ready if e.id not in tried] or ready
        if not ready:
            ready = self._reluctant(alive, now)
        for endpoint in ready:
            if endpoint.warming:
                endpoint.warm(now)
        return self._picker.pick(ready, request, now, self._rng)

    def _alive(self) -> list[Endpoint]:
        """Those that probes do not rule out; all, when that leaves so few that the pool panics."""
        alive = [e for e in self.endpoints if e.health != "unhealthy"]
        return self.endpoints if panics(len(alive), len(self.endpoints), self._panic) else alive

    def _reluctant(self, alive: list[Endpoint], now: float) -> list[Endpoint]:
        """Who may be picked when nobody is ready. Raises `Unavailable` when that is nobody.

        With every breaker open there is nowhere to shift the load to, so none of them counts: a pool of one
        would otherwise turn some failures into an outage. What the endpoints themselves asked for does count.
        """
        if not alive:
            raise self._unavailable("no healthy endpoint", now)
        free = [e for e in alive if e.in_flight < self._max_in_flight]
        if not free or any(e.breaker.allows(now) for e in alive):
            raise self._unavailable("every endpoint is full", now)
        willing = [e for e in free if not e.breaker.rests(now)]
        if not willing:
            first = min(e.breaker.retry_after(now) for e in free)
            raise Resting(f"{self.name}: overloaded.", retry_after=first)
        return willing

    def _unavailable(self, why: str, now: float) -> Unavailable:
        waits = [wait for e in self.endpoints if (wait := e.breaker.retry_after(now)) > 0]
        return Unavailable(f"{self.name}: {why}.", retry_after=max(RETRY_AFTER, min(waits, default=0.0)))
