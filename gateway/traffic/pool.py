"""A set of endpoints that serve the same thing: filter, pick, lease, call."""

from collections.abc import Callable
from random import Random

from adapters.base import Answer
from adapters.errors import Unavailable
from adapters.types import Deadline, GenerateRequest
from gateway.traffic.endpoint import Endpoint
from policies.balance import Picker

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
        rng: Random,
        clock: Callable[[], float],
    ) -> None:
        self.name = name
        self.endpoints = endpoints
        self._picker = picker
        self._max_in_flight = max_in_flight
        self._rng = rng
        self._clock = clock

    async def call(self, request: GenerateRequest, deadline: Deadline) -> Answer:
        started = self._clock()
        # No await between these two: a burst must not see the same endpoint idle.
        endpoint = self._pick(request.tried, started)
        endpoint.begin(started)
        try:
            answer = await endpoint.adapter.call(request, deadline)
        except BaseException as error:
            request.tried += (endpoint.id,)
            endpoint.end(error, self._clock())
            raise
        finally:
            request.upstream_seconds += self._clock() - started
        answer.pool = self.name
        answer.endpoint = endpoint.id
        answer.when_ended(lambda _, error: endpoint.end(error, self._clock()))
        return answer

    def _pick(self, tried: tuple[str, ...], now: float) -> Endpoint:
        limit = self._max_in_flight
        ready = [e for e in self.endpoints if e.health != "unhealthy" and e.in_flight < limit and e.breaker.allows(now)]
        if tried:
            ready = [e for e in ready if e.id not in tried] or ready
        return self._picker.pick(ready or self._reluctant(now), self._rng)

    def _reluctant(self, now: float) -> list[Endpoint]:
        """Who may be picked when nobody is ready. Raises `Unavailable` when that is nobody.

        With every breaker open there is nowhere to shift the load to, so none of them counts: a pool of one
        would otherwise turn some failures into an outage.
        """
        alive = [e for e in self.endpoints if e.health != "unhealthy"]
        if not alive:
            raise self._unavailable("no healthy endpoint", now)
        free = [e for e in alive if e.in_flight < self._max_in_flight]
        if not free or any(e.breaker.allows(now) for e in alive):
            raise self._unavailable("every endpoint is full", now)
        return free

    def _unavailable(self, why: str, now: float) -> Unavailable:
        waits = [wait for e in self.endpoints if (wait := e.breaker.retry_after(now)) > 0]
        return Unavailable(f"{self.name}: {why}.", retry_after=max(RETRY_AFTER, min(waits, default=0.0)))
