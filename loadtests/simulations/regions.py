"""A pool behind many gateways on virtual time: a rule adds and removes its replicas, and a way to place sends requests.

A replica computes `places` requests at the same time; more requests wait in its own queue, first come, first served.
No gateway knows the requests of the others.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from random import Random
from statistics import mean
from typing import NamedTuple, Protocol

import numpy as np

from loadtests.simulations.scaling_rules import Rule
from policies.scaling.scaler import ScalingFacts

SAMPLE = 5.0
"""Seconds between two looks at the imbalance."""
_ARRIVE, _END, _START, _TICK, _LOOK = range(5)


class Replica:
    """One server. `load` is computing and waiting together."""

    __slots__ = ("began", "changes", "loads", "number", "queue", "ready", "running", "views")

    def __init__(self, number: int, began: float) -> None:
        self.number = number
        self.began = began
        self.ready = False
        self.running = 0
        self.queue: deque[int] = deque()
        self.views: dict[int, object] = {}
        """The view of each gateway, for a way to place that has one."""
        self.changes: list[float] = [0.0]
        self.loads: list[tuple[int, int]] = [(0, 0)]

    @property
    def load(self) -> int:
        return self.running + len(self.queue)

    def note(self, now: float) -> None:
        """Remember the load for later reports."""
        self.changes.append(now)
        self.loads.append((self.running, len(self.queue)))
        if len(self.changes) > 512:
            del self.changes[:256], self.loads[:256]

    def load_at(self, then: float) -> tuple[int, int]:
        """The requests that it computed and that waited at a moment of the recent past."""
        return self.loads[max(0, bisect_right(self.changes, then) - 1)]


class Placement(Protocol):
    """How gateways choose a replica."""

    def place(self, gateway: int, ready: Sequence[Replica], attempt: int, now: float) -> Replica | float:
        """The replica of a request, or the seconds until the gateway tries again."""

    def ended(self, gateway: int, replica: Replica, now: float) -> None:
        """A request has ended."""


class Outcome(NamedTuple):
    """Waits are seconds from the arrival to the begin of the computation. `imbalance` is the load of the busiest
    replica over the mean, while at least four are ready."""

    replica_seconds: float
    waits: np.ndarray
    imbalance: float
    starts: int
    peak: int
    cold: int
    """Requests that arrived while no replica was ready."""


class SimulatedRegion:
    """One pool of one region."""

    def __init__(
        self, rule: Rule, placement: Placement, *, gateways: int, places: int, start: float, replicas: int, seed: int
    ) -> None:
        self._rule = rule
        self._placement = placement
        self._gateways = gateways
        self._places = places
        self._start = start
        self._rng = Random(seed)
        self._now = 0.0
        self._events: list[tuple[float, int, int, object]] = []
        self._count = 0
        self._ready: list[Replica] = []
        self._starting: list[Replica] = []
        self._draining: list[Replica] = []
        self._held = 0
        self._demand, self._begun, self._late = 0.0, 0, 0
        self._in_system = 0
        self._seconds = 0.0
        self._starts = self._peak = self._cold = self._numbers = 0
        self._imbalance: list[float] = []
        for _ in range(replicas):
            self._serve(self._made())

    def run(self, arrivals: Sequence[float], services: Sequence[float]) -> Outcome:
        """Serve all requests. `arrivals` rise from 0; both are seconds."""
        self._arrivals, self._services = arrivals, services
        self._waits = np.zeros(len(arrivals))
        self._left = len(arrivals)
        self._gateway_of = [self._rng.randrange(self._gateways) for _ in arrivals]
        self._replica_of: list[Replica | None] = [None] * len(arrivals)
        if arrivals:
            self._at(arrivals[0], _ARRIVE, (0, 0))
        self._at(self._rule.tick, _TICK, None)
        self._at(SAMPLE, _LOOK, None)
        while self._left:
            now, _, kind, subject = heappop(self._events)
            self._demand += (now - self._now) * self._in_system
            self._now = now
            self._happen(kind, subject)
        for replica in (*self._ready, *self._draining, *self._starting):
            self._seconds += self._now - replica.began
        imbalance = mean(self._imbalance) if self._imbalance else 1.0
        return Outcome(self._seconds, self._waits, imbalance, self._starts, self._peak, self._cold)

    def _at(self, when: float, kind: int, subject: object) -> None:
        self._count += 1
        heappush(self._events, (when, self._count, kind, subject))

    def _happen(self, kind: int, subject: object) -> None:
        match kind:
            case 0:
                assert isinstance(subject, tuple)
                self._arrive(*subject)
            case 1:
                assert isinstance(subject, int)
                self._end(subject)
            case 2:
                assert isinstance(subject, Replica)
                if subject in self._starting:
                    self._starting.remove(subject)
                    self._serve(subject)
            case 3:
                self._evaluate()
                self._at(self._now + self._rule.tick, _TICK, None)
            case _:
                self._look()
                self._at(self._now + SAMPLE, _LOOK, None)

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────────

    def _arrive(self, index: int, attempt: int) -> None:
        if not attempt:
            self._in_system += 1
            self._held += 1
            self._cold += not self._ready
            if index + 1 < len(self._arrivals):
                self._at(self._arrivals[index + 1], _ARRIVE, (index + 1, 0))
        placed = self._placement.place(self._gateway_of[index], self._ready, attempt, self._now) if self._ready else 0.5
        if not isinstance(placed, Replica):
            self._at(self._now + placed, _ARRIVE, (index, attempt + 1))
            return
        self._held -= 1
        self._replica_of[index] = placed
        placed.queue.append(index)
        self._next(placed)

    def _next(self, replica: Replica) -> None:
        while replica.queue and replica.running < self._places:
            index = replica.queue.popleft()
            replica.running += 1
            wait = self._waits[index] = self._now - self._arrivals[index]
            self._begun += 1
            self._late += bool(wait > getattr(self._rule, "wait", np.inf))
            self._at(self._now + self._services[index], _END, index)
        replica.note(self._now)

    def _end(self, index: int) -> None:
        replica = self._replica_of[index]
        assert replica is not None
        replica.running -= 1
        self._in_system -= 1
        self._left -= 1
        self._placement.ended(self._gateway_of[index], replica, self._now)
        self._next(replica)
        if not replica.ready and not replica.load and replica in self._draining:
            self._draining.remove(replica)
            self._seconds += self._now - replica.began

    # ── replicas ──────────────────────────────────────────────────────────────────────────────────────────

    def _made(self) -> Replica:
        self._numbers += 1
        return Replica(self._numbers, self._now)

    def _serve(self, replica: Replica) -> None:
        replica.ready = True
        self._ready.append(replica)
        self._peak = max(self._peak, len(self._ready))

    def _evaluate(self) -> None:
        ready, starting = len(self._ready), len(self._starting)
        waiting = self._held + sum(len(replica.queue) for replica in self._ready)
        demand = self._demand / self._rule.tick
        facts = ScalingFacts(demand, waiting, ready, starting, self._begun, self._late)
        self._demand, self._begun, self._late = 0.0, 0, 0
        change = self._rule.desired(facts, self._now) - ready - starting
        for _ in range(change):
            self._add()
        for _ in range(-change):
            self._take_away()

    def _add(self) -> None:
        if self._draining:
            self._serve(self._draining.pop())
            return
        self._starts += 1
        replica = self._made()
        self._starting.append(replica)
        self._at(self._now + self._start, _START, replica)

    def _take_away(self) -> None:
        if self._starting:
            self._seconds += self._now - self._starting.pop().began
            return
        replica = min(self._ready, key=_load)
        self._ready.remove(replica)
        replica.ready = False
        if replica.load:
            self._draining.append(replica)
        else:
            self._seconds += self._now - replica.began

    def _look(self) -> None:
        loads = [replica.load for replica in self._ready]
        if len(loads) >= 4 and any(loads):
            self._imbalance.append(max(loads) * len(loads) / sum(loads))


def _load(replica: Replica) -> int:
    return replica.load
