"""Model servers on virtual time, behind the gateway's own `Pool`.

A replica computes some answers at once and lets the others wait their turn. It computes the
part of a prompt that is not cached, then the answer; it caches the conversations that it served last. Nothing sleeps: a
heap of events is the clock, and a call that waits is a coroutine that an event resumes.
"""

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from math import inf
from random import Random
from typing import Any, NamedTuple

from adapters import call as calls
from adapters.base import Answer
from adapters.errors import InferenceError, TransportError
from adapters.requests import ChatRequest, ModelRequest
from adapters.types import Deadline
from adapters.wire.openai.request_codec import OpenAIPayload
from config.schema.config import BalanceConfig
from gateway.traffic.endpoint import Endpoint
from gateway.traffic.fleet.signals import HALF_LIFE
from gateway.traffic.pool import Pool
from policies.balancing.pickers import picker
from policies.breaker import Breaker

SLOTS = 8
"""Answers that a replica computes at once."""
PROMPT_RATE = 16_000.0
"""Bytes of prompt computed in a second."""
CACHE = 400_000
"""Bytes of prompt that a replica caches."""
DETECT = 2.0
"""Seconds until a health check notices a change."""
ATTEMPTS = 3

_FOREVER = Deadline(inf, inf, inf)


class Turn(NamedTuple):
    """One request: when it comes, and how long its answer takes once its prompt is computed."""

    at: float
    tenant: str
    user: str
    prompt: memoryview
    output: float


class Clock:
    """Virtual seconds, and the events due at each."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, when: float, event: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, event))

    def run(self) -> None:
        """Until nothing is left to happen."""
        while self._events:
            self.now, _, event = heapq.heappop(self._events)
            event()


class Job:
    """One request at one replica. Awaiting it gives the answer when that begins."""

    def __init__(self, replica: "Replica", request: ModelRequest, tenant: str) -> None:
        self.tenant = tenant
        self.replica = replica
        self.request = request
        self.call: Call | None = None
        self.answer: Answer | None = None

    def __await__(self) -> Generator["Job", Answer, Answer]:
        return (yield self)


class Replica:
    """An `Adapter`: what the pool calls."""

    def __init__(self, clock: Clock, slowness: float) -> None:
        self._clock = clock
        self.slowness = slowness
        self.up = True
        self.stalled_until = 0.0
        self._running: dict[Job, None] = {}  # ordered, so that a seed determines the run
        self._waiting: deque[Job] = deque()
        self._cache: OrderedDict[tuple[str, str], int] = OrderedDict()  # (tenant, user) → bytes of prompt
        self._cached = 0
        self.prompt_bytes = self.cached_bytes = 0

    async def call(self, request: ModelRequest, call: calls.Call) -> Answer:
        if not self.up:
            raise TransportError("connection refused")
        return await Job(self, request, call.tenant)

    async def probe(self, timeout: float) -> None:
        """Health follows the faults that are played, see `SimulatedFleet.kill`."""

    async def aclose(self) -> None:
        """Nothing is open."""

    def load(self) -> tuple[int, int]:
        """Requests that it computes, and that wait."""
        return len(self._running), len(self._waiting)

    def enter(self, job: Job) -> None:
        self._waiting.append(job)
        self._next()

    def kill(self) -> None:
        """All that it was at fails, and it forgets."""
        self.up = False
        jobs = [*self._running, *self._waiting]
        self._running.clear()
        self._waiting.clear()
        self._cache.clear()
        self._cached = 0
        for job in jobs:
            assert job.call is not None
            job.call.broken(job, TransportError("connection reset"))

    def _next(self) -> None:
        while self._waiting and len(self._running) < SLOTS:
            job = self._waiting.popleft()
            self._running[job] = None
            begin = max(self._clock.now, self.stalled_until) + self._prefill(job.request, job.tenant) * self.slowness
            self._clock.at(begin, partial(self._begin, job))

    def _prefill(self, request: ModelRequest, tenant: str) -> float:
        """Seconds for the part that is not cached."""
        conversation, size = (tenant, request.user or ""), len(request.prompt)
        cached = self._cache.pop(conversation, 0)
        self._cache[conversation] = size
        self._cached += size - cached
        while self._cached > CACHE:
            self._cached -= self._cache.popitem(last=False)[1]
        self.prompt_bytes += size
        self.cached_bytes += cached
        return (size - cached) / PROMPT_RATE

    def _begin(self, job: Job) -> None:
        if job in self._running:  # and was not killed meanwhile
            assert job.call is not None
            job.call.begun(job)
            self._clock.at(self._clock.now + job.call.turn.output * self.slowness, partial(self._finish, job))

    def _finish(self, job: Job) -> None:
        if job in self._running:
            del self._running[job]
            assert job.answer is not None
            job.answer.end(None)
            self._next()


class Call:
    """One turn, up to its answer's first chunk; what fails before is tried again, elsewhere if that can be."""

    def __init__(self, fleet: "SimulatedFleet", turn: Turn, gateway: int = 0) -> None:
        self._fleet = fleet
        self._gateway = gateway
        self.turn = turn
        self._attempt = 0
        self._coroutine: Coroutine[Any, Any, Answer]
        self._call = calls.Call(_FOREVER, tenant=turn.tenant, key=turn.tenant)
        self._request = ChatRequest(
            model="chat", payload=OpenAIPayload(fields={}), prompt=turn.prompt, user=turn.user
        )  # fmt: skip

    def start(self) -> None:
        self._attempt += 1
        self._coroutine = self._fleet.pools[self._gateway].call(self._request, self._call)
        try:
            job: Job = self._coroutine.send(None)
        except InferenceError:
            self._failed()
        else:
            job.call = self
            job.replica.enter(job)

    def begun(self, job: Job) -> None:
        job.answer = Answer(content_type="", body=None)
        try:
            self._coroutine.send(job.answer)
        except StopIteration:
            self._fleet.near += self._fleet.is_near(self._gateway, job.replica)
            self._fleet.first_chunk.append(self._fleet.clock.now - self.turn.at)

    def broken(self, job: Job, error: InferenceError) -> None:
        if job.answer is not None:
            job.answer.end(error)
            self._fleet.broken += 1
            return
        try:
            self._coroutine.throw(error)
        except InferenceError:
            self._failed()

    def _failed(self) -> None:
        if self._attempt < ATTEMPTS:
            self._fleet.clock.at(self._fleet.clock.now + 0.025 * 2**self._attempt, self.start)
        else:
            self._fleet.failed += 1


class SimulatedFleet:
    """Gateways that know nothing of each other, each with a pool over the same replicas, and what was seen of it.

    With zones, replicas and gateways stand in them by turns.
    """

    def __init__(
        self, balance: BalanceConfig, slowness: list[float], seed: int, gateways: int = 1, zones: int = 0
    ) -> None:
        self.clock = Clock()
        self.replicas = [Replica(self.clock, factor) for factor in slowness]
        self.pools = [self._pool(balance, seed + number, _zone(number, zones), zones) for number in range(gateways)]
        self._zones = zones
        self._index = {replica: i for i, replica in enumerate(self.replicas)}
        self._rng = Random(seed)
        self.first_chunk: list[float] = []
        self.failed = self.broken = self.near = 0
        self.imbalance: list[float] = []

    def _pool(self, balance: BalanceConfig, seed: int, zone: str | None, zones: int) -> Pool:
        endpoints = [
            Endpoint(f"sim/{i}", replica, Breaker(5, 10.0), address=f"http://replica-{i}:8000")
            for i, replica in enumerate(self.replicas)
        ]
        for i, endpoint in enumerate(endpoints):
            endpoint.configure(1.0, balance.slow_start)
            endpoint.zone = _zone(i, zones)
        return Pool(
            "sim", endpoints, picker(balance, zone), max_in_flight=256, panic=balance.panic, rng=Random(seed),
            clock=lambda: self.clock.now,
        )  # fmt: skip

    def submit(self, turn: Turn) -> None:
        """Let it come at its time, to any gateway."""
        self.clock.at(turn.at, Call(self, turn, self._rng.randrange(len(self.pools))).start)

    def report(self, every: float, until: float) -> None:
        """Let every replica report its load, each at its own moment, as the gateways' scrapers read it."""
        for i, replica in enumerate(self.replicas):
            for number, pool in enumerate(self.pools):
                first = (i * 0.37 + number * 0.61) % 1.0 * every
                self.clock.at(first, partial(self._scrape, pool.endpoints[i], replica, every, until))

    def _scrape(self, endpoint: Endpoint, replica: Replica, every: float, until: float) -> None:
        now = self.clock.now
        if replica.up:
            running, waiting = replica.load()
            endpoint.signal.report(
                running=running, waiting=waiting, cache=running / SLOTS, own=endpoint.in_flight,
                half_life=HALF_LIFE * every, now=now,
            )  # fmt: skip
        if now + every < until:
            self.clock.at(now + every, partial(self._scrape, endpoint, replica, every, until))

    def is_near(self, gateway: int, replica: Replica) -> bool:
        return self._zones > 0 and self._index[replica] % self._zones == gateway % self._zones

    def endpoints_of(self, index: int) -> list[Endpoint]:
        """One replica, as each gateway sees it."""
        return [pool.endpoints[index] for pool in self.pools]

    def kill(self, index: int, at: float, back_at: float) -> None:
        """A crash, noticed a little later, and a new start without a memory."""
        replica = self.replicas[index]

        def probed(error: str) -> None:
            for endpoint in self.endpoints_of(index):
                endpoint.probed(error, healthy_after=1, unhealthy_after=1)

        def revive() -> None:
            replica.up = True

        self.clock.at(at, replica.kill)
        self.clock.at(at + DETECT, partial(probed, "connection refused"))
        self.clock.at(back_at, revive)
        self.clock.at(back_at + DETECT, partial(probed, ""))

    def stall(self, index: int, at: float, until: float) -> None:
        """It begins no answer for a while, and no check notices."""

        def begin() -> None:
            self.replicas[index].stalled_until = until

        self.clock.at(at, begin)

    def look(self, at: float) -> None:
        """Note how uneven the load is then: the busiest replica's over the mean."""

        def note() -> None:
            loads = [sum(e.in_flight for e in self.endpoints_of(i)) for i in range(len(self.replicas))]
            if any(loads):
                self.imbalance.append(max(loads) * len(loads) / sum(loads))

        self.clock.at(at, note)


def _zone(number: int, zones: int) -> str | None:
    return f"zone-{number % zones}" if zones else None
