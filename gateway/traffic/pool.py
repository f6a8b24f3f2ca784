"""A set of endpoints that serve the same models: filter, pick, lease, call; a queue if all are full."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import inf
from random import Random
from typing import TYPE_CHECKING

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import AccountsRest, InferenceError, ModelNotReady, NonePermitted, Overloaded, Resting, Unavailable
from adapters.http1.relay import Relay
from adapters.requests import ModelRequest
from adapters.types import Usage
from adapters.upstreams.scrubbing import clean
from gateway.traffic.cold import ColdStart
from gateway.traffic.endpoint import Endpoint, RefusalKey, subject_of
from gateway.traffic.meter import PoolMeter
from gateway.traffic.picked import alternatives, carried, served
from gateway.traffic.queue import PoolQueue, QueuedRequest
from gateway.traffic.spans import AttemptSpan
from policies.balancing.balance import Picker
from policies.balancing.stickiness import home_of
from policies.health import panics
from policies.queueing import BATCH

if TYPE_CHECKING:  # for pools with accounts
    from gateway.traffic.accounts.endpoint import AccountEndpoint

RETRY_AFTER = 1.0
MOST_UNSEEN = 2**20
"""Tokens that a server may report beyond the bytes that it has received and sent: the context of a large model."""


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
        queue: PoolQueue | None = None,
        meter: PoolMeter | None = None,
        cold: ColdStart | None = None,
        accounts: bool = False,
        rng: Random,
        clock: Callable[[], float],
    ) -> None:
        self.name = name
        self._endpoints: list[Endpoint] = []
        self._picker = picker
        self._max_in_flight = max_in_flight
        self._panic = panic
        self._rng = rng
        self._clock = clock
        self._queue = queue
        self._meter = meter
        self._cold = cold
        self._accounts: type[AccountEndpoint] | None = None
        if accounts:
            from gateway.traffic.accounts import endpoint

            self._accounts = endpoint.AccountEndpoint
        self.leaving: Sequence[Endpoint] = ()
        """Endpoints that receive no new requests, except requests of sequences that started there."""
        if queue is not None:
            queue.places = self
            queue.cold = cold
        if endpoints:
            self.endpoints = endpoints

    @property
    def endpoints(self) -> list[Endpoint]:
        """The current endpoints. Setting them wakes the requests in the queue."""
        return self._endpoints

    @endpoints.setter
    def endpoints(self, endpoints: list[Endpoint]) -> None:
        self._endpoints = endpoints
        for endpoint in endpoints:
            endpoint.waiting = self._queue
        if self._queue is not None:
            self._queue.changed()

    @property
    def is_cold(self) -> bool:
        """Whether requests wait for the first replica."""
        return self._cold is not None and all(endpoint.health == "unhealthy" for endpoint in self._endpoints)

    @property
    def starts(self) -> bool:
        """Whether the pool has no replica, and starts one for a request."""
        return self._cold is not None and self._cold.failure(self._clock()) is None

    @property
    def waiting(self) -> int:
        """The number of requests in the queue."""
        return 0 if self._queue is None else self._queue.line.size

    def load(self, now: float) -> tuple[int, int, int]:
        """The places at endpoints that may be used, the requests in flight, and the live requests in the queue."""
        usable = [e for e in self._alive() if e.breaker.allows(now) and not e.breaker.rests(now)]
        waiting = 0 if self._queue is None else sum(self._queue.line.depths()[:BATCH])
        return len(usable) * self._max_in_flight, sum(e.in_flight for e in self._endpoints), waiting

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        started, queue = self._clock(), self._queue
        waiter: QueuedRequest | None = None
        waited = 0.0
        try:
            # No request overtakes the queue.
            endpoint = self.lease(request, call, started) if queue is None or not queue.line.size else None
            if endpoint is None:
                waiter, arrived = await self._wait(request, call, started), started
                endpoint, started = waiter.place, self._clock()
                waited = started - arrived
        except InferenceError:
            if self._meter is not None:
                self._meter.miss()
            raise
        if self._meter is not None:
            self._meter.begin(waited)
        call.sent(endpoint.id, started)
        span: AttemptSpan | None = None
        if call.trace.spans is not None:
            call.span = span = AttemptSpan(call.trace.spans, request, call.step, endpoint, self.name, started)
        relay, accounts = call.relay, self._accounts
        others: list[Endpoint] = []
        try:
            if accounts is not None:
                accounts.sends(endpoint, request)
            if relay is None:
                answer = await endpoint.adapter.call(request, call)
            else:
                if accounts is None:  # another account has another key
                    ready = self._ready(relay, subject_of(request, call), started)
                    others = alternatives(endpoint, ready, relay.alternatives)
                answer = await carried(relay, endpoint, others, request, call)
            if answer.status >= 400:
                await clean(answer, endpoint.scrubber)
        except BaseException as error:
            now = self._clock()
            if relay is not None:
                endpoint = served(relay, endpoint, others, request, call, now)
            call.trace.returned(now)
            if span is not None:
                span.failed(error, now)
            if queue is not None:
                queue.settle(request, call, waiter, _begun(request, error))
            if accounts is not None:
                accounts.release(endpoint, request)
                if isinstance(error, InferenceError) and not error.delivered:
                    accounts.settle(endpoint, request, Usage(), now)
            endpoint.failed_to_begin(error, now - started, now, subject_of(request, call), span)
            if isinstance(error, InferenceError):
                error.note(pool=self.name, endpoint=endpoint.id)
            raise
        now = self._clock()
        if relay is not None:
            endpoint = served(relay, endpoint, others, request, call, now)
        call.trace.returned(now)
        if accounts is not None:
            accounts.release(endpoint, request)
        endpoint.latency.answered(now - started, now)
        answer.pool = self.name
        answer.endpoint = endpoint.id
        if span is not None:
            span.begun = now
        answer.when_ended(partial(self._end, endpoint, request, call, span, waiter))
        return answer

    def spare(self, subject: RefusalKey, tried: Sequence[str]) -> bool:
        """Whether an endpoint outside `tried` has a free slot now. Requests in the queue come first."""
        return any(endpoint.id not in tried for endpoint in self.free(subject, self._clock()))

    def free(self, subject: RefusalKey, now: float) -> Iterator[Endpoint]:
        """The endpoints with a free slot that accept such a request. None while others wait."""
        if self._queue is not None and self._queue.line.size:
            return
        limit = self._max_in_flight
        yield from (e for e in self._alive() if e.in_flight < limit and e.allows(subject, now))

    async def _wait(self, request: ModelRequest, call: Call, now: float) -> QueuedRequest:
        """Wait for a slot. Raises `Unavailable` at once without a queue, and if another pool must be tried first."""
        if call.full_pools is not None:
            call.full_pools.append(self.name)
        elif self._queue is not None:
            return await self._queue.wait(request, call)
        if self._accounts is not None and (resting := self._accounts.resting(alive := self._alive(), request, now)):
            wait, cause = resting
            rests = AccountsRest(f"{self.name}: the provider accepts no more requests now.", retry_after=wait)
            raise rests.because(cause, pool=self.name, endpoints=len(self._endpoints), resting=len(alive))
        raise self._full(subject_of(request, call), now)

    def _end(
        self,
        endpoint: Endpoint,
        request: ModelRequest,
        call: Call,
        span: AttemptSpan | None,
        waiter: QueuedRequest | None,
        answer: Answer,
        error: BaseException | None,
    ) -> None:
        now = self._clock()
        if not _is_possible(request, answer.usage):
            answer.usage.estimate(request.prompt_tokens)
            call.trace.event("implausible_usage", self.name)
        if self._queue is not None:
            self._queue.settle(request, call, waiter, answer.usage)
        if self._accounts is not None:
            self._accounts.settle(endpoint, request, answer.usage, now)
        if span is not None:
            span.answered(answer, error, now)
        endpoint.end(error, now, subject_of(request, call), span)

    def lease(self, request: ModelRequest, call: Call, now: float) -> Endpoint | None:
        """Pick an endpoint and count the request there; None when all eligible endpoints are full.

        Raises `Unavailable` when no endpoint is eligible. There is no await here: the requests of a burst must not all
        see the same endpoint idle.
        """
        if self._cold is not None and self.is_cold and not call.home:
            if (failure := self._cold.failure(now)) is not None:
                raise failure
            return None
        if request.sequence:
            return self._at_home(request, call, now)
        limit, tried, subject = self._max_in_flight, call.tried, subject_of(request, call)
        alive = self._alive() if call.relay is None else self._permitted(call.relay, subject, now)
        ready = []
        for endpoint in alive:  # a loop: each request passes here, and a comprehension is a call
            if endpoint.in_flight < limit and endpoint.allows(subject, now):
                ready.append(endpoint)  # noqa: PERF401
        if self._accounts is not None:
            ready = self._accounts.with_room(ready, request, now)
        if tried:
            ready = [e for e in ready if e.id not in tried] or ready
        if not ready:
            ready = self._reluctant(alive, subject, now)
            if not ready:
                return None
        for endpoint in ready:
            if endpoint.warming:
                endpoint.warm(now)
        endpoint = self._picker.pick(ready, request, call, now, self._rng)
        endpoint.begin(now, subject)
        if self._accounts is not None:
            self._accounts.hold(endpoint, request, now)
        return endpoint

    def give_back(self, endpoint: Endpoint, request: ModelRequest, call: Call, error: InferenceError) -> None:
        """End a lease whose request was not sent."""
        now = self._clock()
        if self._accounts is not None:
            self._accounts.release(endpoint, request)
            self._accounts.settle(endpoint, request, Usage(), now)
        endpoint.failed_to_begin(error, 0.0, now, subject_of(request, call))

    def _permitted(self, relay: Relay, subject: RefusalKey, now: float) -> list[Endpoint]:
        """The endpoints that a relay can reach and permits. Raises `NonePermitted` without such an endpoint."""
        permitted = [endpoint for endpoint in self._alive() if relay.admits(endpoint.address)]
        if not permitted and self._endpoints:
            message = f"{self.name}: no healthy endpoint among those that the proxy may use."
            raise NonePermitted(message, retry_after=self._retry_after(subject, now)).note(pool=self.name)
        return permitted

    def _ready(self, relay: Relay, subject: RefusalKey, now: float) -> list[Endpoint]:
        """The endpoints that may answer a request of a relay."""
        limit = self._max_in_flight
        return [e for e in self._alive() if e.in_flight < limit and e.allows(subject, now) and relay.admits(e.address)]

    def has_room(self, now: float) -> bool:
        """Whether another request may get a slot, when the next one of the queue gets none."""
        alive, limit = self._alive(), self._max_in_flight
        closed = [e for e in alive if e.breaker.allows(now)]
        if any(e.in_flight < limit for e in closed):
            return True
        # A request that all of these refuse may use an endpoint with an open breaker.
        return all(e.refusals.held for e in closed) and any(
            e.in_flight < limit and not e.breaker.rests(now) for e in alive
        )

    def _at_home(self, request: ModelRequest, call: Call, now: float) -> Endpoint | None:
        """Lease the only endpoint that may answer a request of a sequence.

        If the endpoint is unknown, the sequence's name determines it, with the same result in every gateway.
        """
        if call.home:
            all_endpoints = (*self._endpoints, *self.leaving)
            home = next((e for e in all_endpoints if e.id == call.home), None)
        else:
            alive = self._alive()
            home = home_of(f"{call.tenant}\0{request.sequence}", alive) if alive else None
        if home is None:
            message = (
                f"{self.name}: the endpoint that held this sequence is no longer available. Start the sequence again."
            )
            wait = self._retry_after(subject_of(request, call), now)
            lost = Unavailable(message, code="sequence_lost", retry_after=wait)
            raise lost.because("sequence_lost", pool=self.name)
        if call.relay is not None and not call.relay.admits(home.address):
            message = f"{self.name}: the proxy may not use the endpoint that holds this sequence."
            raise NonePermitted(message).note(pool=self.name, endpoint=home.id)
        if home.in_flight >= self._max_in_flight:
            return None
        home.begin(now, subject_of(request, call))
        if self._accounts is not None:
            self._accounts.hold(home, request, now)
        return home

    def next_change(self, now: float) -> float:
        """Seconds until an ineligible endpoint may become eligible; inf if only a finishing request can change that."""
        return min((wait for e in self._endpoints if (wait := e.next_change(now)) > 0), default=inf)

    def _alive(self) -> list[Endpoint]:
        """Endpoints that are not unhealthy; all endpoints if so few remain that the pool panics."""
        alive = []
        for endpoint in self._endpoints:
            if endpoint.health != "unhealthy":
                alive.append(endpoint)  # noqa: PERF401
        panicking = self._panic and panics(len(alive), len(self._endpoints), self._panic)
        return self._endpoints if panicking else alive

    def _reluctant(self, alive: list[Endpoint], subject: RefusalKey, now: float) -> list[Endpoint]:
        """Eligible endpoints when none is ready; empty when all are full. Raises `Unavailable` when none is healthy.

        If every breaker is open, no endpoint can take the load, so breakers are ignored: otherwise a few failures in a
        pool of one endpoint would become an outage. A pause that an endpoint itself requires is respected.
        """
        if not alive:
            raise self._none_healthy(subject, now)
        if any(e.allows(subject, now) for e in alive):
            return []
        return [e for e in alive if e.in_flight < self._max_in_flight and not e.rests(subject, now)]

    def _none_healthy(self, subject: RefusalKey, now: float) -> Unavailable:
        """The error without a healthy endpoint, with the reason why the model is not ready if that is the cause."""
        standing = next((e.not_ready for e in self._endpoints if e.not_ready is not None), None)
        if standing is None:
            error = Unavailable(f"{self.name}: no healthy endpoint.", retry_after=self._retry_after(subject, now))
            probe = next((e.probe_error for e in self._endpoints if e.probe_error), None)
            return error.note(pool=self.name, endpoints=len(self._endpoints), probe=probe)
        message = f"{self.name}: the model is not ready: {standing.reason or standing.state.lower()}."
        return ModelNotReady(
            message,
            state=standing.state,
            reason=standing.reason,
            versions=standing.versions,
            retry_after=standing.retry_after,
        ).note(pool=self.name, endpoints=len(self._endpoints), state=standing.state)

    def _full(self, subject: RefusalKey, now: float) -> Unavailable:
        """The error for a request that `lease` could not place."""
        alive = self._alive()
        resting = [e for e in alive if e.in_flight < self._max_in_flight and e.rests(subject, now)]
        if resting and not any(e.allows(subject, now) for e in alive):
            wait = min(e.rests(subject, now) for e in resting)
            last = next((e.refusal for e in resting if e.refusal is not None), None)
            cause = "upstream_resting" if last is None else last.cause
            rests = Resting(f"{self.name}: overloaded.", retry_after=wait)
            return rests.because(cause, pool=self.name, endpoints=len(self._endpoints), resting=len(resting))
        free = sum(e.in_flight < self._max_in_flight for e in alive)  # those have an open breaker
        full = Overloaded(f"{self.name}: every endpoint is full.", retry_after=self._retry_after(subject, now))
        return full.because(
            "breaker_open" if free else "pool_full",
            pool=self.name,
            endpoints=len(self._endpoints),
            unhealthy=len(self._endpoints) - len(alive),
            breaker_open=free,
        )

    def _retry_after(self, subject: RefusalKey, now: float) -> float:
        waits = [wait for e in self._endpoints if (wait := e.retry_after(subject, now)) > 0]
        return max(RETRY_AFTER, min(waits, default=0.0))


def _is_possible(request: ModelRequest, usage: Usage) -> bool:
    """Whether a server can have counted so many tokens.

    A byte of a request is at most one token. Pictures by URL, the results of a server's own tools and hidden reasoning
    need no bytes, so `MOST_UNSEEN` tokens are possible beside them.
    """
    most = MOST_UNSEEN * max(request.n, 1)
    return usage.prompt_tokens <= request.size + MOST_UNSEEN and usage.completion_tokens <= usage.bytes + most


def _begun(request: ModelRequest, error: BaseException) -> Usage | None:
    """The usage of a request without an answer. If the client has disconnected, the upstream was processing the
    prompt."""
    return None if isinstance(error, InferenceError) else Usage(prompt_tokens=request.prompt_tokens, rows=request.rows)
