"""A pool on virtual time whose replicas a rule adds and removes.

A replica serves `places` requests at the same time. The queue is first come, first served; a request goes to the
replica with the fewest requests. A new replica needs `start` seconds. A removed one finishes its requests; one that has
not started is removed at once, before those that serve.
"""

from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple

import numpy as np

from loadtests.simulations.scaling_rules import Rule
from policies.scaling.scaler import ScalingFacts


class Outcome(NamedTuple):
    """The result of a day. Waits are seconds in the queue."""

    replica_hours: float
    p50: float
    p99: float
    longest: float
    starts: int
    peak: int


class _Replica:
    __slots__ = ("began", "draining", "running")

    def __init__(self, began: float) -> None:
        self.began = began
        self.running = 0
        self.draining = False


class SimulatedPool:
    """One pool, one rule, one day."""

    def __init__(self, rule: Rule, *, places: int, start: float, replicas: int) -> None:
        self._rule = rule
        self._places = places
        self._start = start
        self._now = 0.0
        self._ready = [_Replica(0.0) for _ in range(replicas)]
        self._draining: list[_Replica] = []
        self._starting: list[tuple[float, int, _Replica]] = []
        self._ends: list[tuple[float, int, _Replica]] = []
        self._queue: deque[int] = deque()
        self._running = 0
        self._number = 0
        self._seconds = 0.0
        self._demand = 0.0
        self._begun = self._late = 0
        self._starts, self._peak = 0, replicas

    def run(self, arrivals: Sequence[float], services: Sequence[float]) -> Outcome:
        """Serve all requests. `arrivals` rise; both are seconds."""
        waits = np.zeros(len(arrivals))
        following, next_tick = 0, self._rule.tick
        while following < len(arrivals) or self._queue or self._ends:
            arrival = arrivals[following] if following < len(arrivals) else inf
            end = self._ends[0][0] if self._ends else inf
            start = self._starting[0][0] if self._starting else inf
            self._advance(min(arrival, end, start, next_tick))
            if self._now == next_tick:
                self._evaluate()
                next_tick += self._rule.tick
            elif self._now == end:
                self._finish(heappop(self._ends)[2])
            elif self._now == start:
                self._ready.append(heappop(self._starting)[2])
            else:
                self._queue.append(following)
                following += 1
            self._place(arrivals, services, waits)
        for replica in [*self._ready, *self._draining, *(entry[2] for entry in self._starting)]:
            self._remove(replica)
        p50, p99 = np.quantile(waits, (0.5, 0.99))
        hours = self._seconds / 3600
        return Outcome(hours, float(p50), float(p99), float(waits.max()), self._starts, self._peak)

    def _advance(self, now: float) -> None:
        self._demand += (now - self._now) * (self._running + len(self._queue))
        self._now = now

    def _place(self, arrivals: Sequence[float], services: Sequence[float], waits: np.ndarray) -> None:
        while self._queue and self._ready:
            replica = min(self._ready, key=_load)
            if replica.running >= self._places:
                return
            index = self._queue.popleft()
            waits[index] = self._now - arrivals[index]
            self._begun += 1
            self._late += bool(waits[index] > getattr(self._rule, "wait", inf))
            replica.running += 1
            self._running += 1
            self._number += 1
            heappush(self._ends, (self._now + services[index], self._number, replica))

    def _finish(self, replica: _Replica) -> None:
        replica.running -= 1
        self._running -= 1
        if replica.draining and not replica.running:
            self._draining.remove(replica)
            self._remove(replica)

    def _evaluate(self) -> None:
        ready, starting = len(self._ready), len(self._starting)
        demand = self._demand / self._rule.tick
        facts = ScalingFacts(demand, len(self._queue), ready, starting, self._begun, self._late)
        self._demand, self._begun, self._late = 0.0, 0, 0
        change = self._rule.desired(facts, self._now) - ready - starting
        for _ in range(change):
            self._add()
        for _ in range(-change):
            self._take_away()
        self._peak = max(self._peak, len(self._ready) + len(self._starting))

    def _add(self) -> None:
        if self._draining:
            replica = self._draining.pop()
            replica.draining = False
            self._ready.append(replica)
            return
        self._starts += 1
        self._number += 1
        heappush(self._starting, (self._now + self._start, self._number, _Replica(self._now)))

    def _take_away(self) -> None:
        if self._starting:
            newest = max(self._starting)
            self._starting.remove(newest)
            heapify(self._starting)
            self._remove(newest[2])
            return
        replica = min(self._ready, key=_load)
        self._ready.remove(replica)
        if not replica.running:
            self._remove(replica)
            return
        replica.draining = True
        self._draining.append(replica)

    def _remove(self, replica: _Replica) -> None:
        self._seconds += self._now - replica.began


def _load(replica: _Replica) -> int:
    return replica.running
