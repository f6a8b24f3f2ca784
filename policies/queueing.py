"""The order of a pool's queue, and the request that a full queue evicts.

    bands         the highest priority first; a lower one may have a share of the turns while a higher one waits, but
                  batches never have
    tenants       within a band: the tenant with the least service for its share (`VirtualTokenCounter`)
    urgency       within a tenant: the request that is due first (earliest deadline first, which misses no deadline
                  that any order would meet; Dertouzos, IFIP Congress 1974)

A full queue evicts from the other end: in the lowest band, the tenant with the most waiting requests for its share, and
of these requests the newest. A flood therefore fills only the places of its own tenant.
(McKenney, "Stochastic Fairness Queueing", INFOCOM 1990: drop from the longest queue.)
"""

from collections import Counter, OrderedDict
from collections.abc import Container, Iterable, Iterator, Mapping, Set
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

PROMPT, COMPLETION = 1.0, 2.0
"""Weights of tokens. A completion token costs a server more than a prompt token, as all price lists reflect."""


def work(prompt_tokens: int, completion_tokens: int, rows: int = 0) -> float:
    """Weighted tokens, or rows of tensors; never 0, so that requests without either take turns too."""
    return max(1.0, PROMPT * prompt_tokens + COMPLETION * completion_tokens + rows)


class VirtualTokenCounter:
    """Fair shares between tenants: the tenant with the least service for its share is next.

    Each tenant has a counter: its service, in weighted tokens, divided by its share. (Sheng et al., "Fairness in
    Serving Large Language Models", OSDI 2024, algorithm 2.) The counter uses actual service, so no estimate of answer
    lengths is needed. The caller passes `waiting`, the tenants that wait at the moment.

    For two tenants that both wait throughout an interval, their charges in the interval, per share, differ by at most
    2 × U, where U = (largest prompt + slots × largest rest of a charge) / smallest share. U is the most by which one
    counter can exceed the lowest, as it was the lowest when it was last chosen.
    """

    __slots__ = ("_counters", "_last_level")

    def __init__(self) -> None:
        self._counters: dict[str, float] = {}
        self._last_level = 0.0

    def level(self, tenant: str) -> float:
        """A tenant's service for its share. Only differences are meaningful."""
        return self._counters.get(tenant, 0.0)

    def join(self, tenant: str, waiting: Iterable[str]) -> None:
        """Record that a tenant begins to wait. Its counter is raised to the lowest of the waiting tenants, or to that
        of the last tenant that left: idle time earns no credit, and a new tenant has no debt."""
        floor = min(map(self.level, waiting), default=self._last_level)
        self._counters[tenant] = max(self.level(tenant), floor)

    def leave(self, tenant: str) -> None:
        """Record that a tenant stops waiting."""
        self._last_level = self.level(tenant)

    def next(self, waiting: Iterable[str]) -> str:
        """The next tenant; among equals, the first. Raises ValueError if no tenant waits."""
        return min(waiting, key=self.level)

    def charge(self, tenant: str, tokens: float, share: float) -> None:
        """Charge a tenant for service; a negative amount corrects an estimate."""
        self._counters[tenant] = self.level(tenant) + tokens / share

    def keep(self, tenants: Container[str]) -> None:
        """Drop the counters of all other tenants."""
        self._counters = {tenant: level for tenant, level in self._counters.items() if tenant in tenants}


NEW = 1 / 32
"""The weight of a new measurement: servers that answer in step free their slots in bursts, and a burst of up to 32
must not look like the rate of the pool."""
ENOUGH = 8


class DrainRate:
    """The mean time between two free slots while requests wait.

    Only a full pool shows its rate, so nothing is measured while the queue is empty.
    """

    __slots__ = ("_gap", "_last", "_seen")

    def __init__(self) -> None:
        self._gap = 0.0
        self._last = 0.0
        self._seen = 0

    def start(self, now: float) -> None:
        """Record that the queue is no longer empty. Earlier measurements lose weight, as conditions may have
        changed."""
        self._last = now
        self._seen = min(self._seen, ENOUGH)

    def freed(self, now: float) -> None:
        """Record that a waiting request received a free slot."""
        self._seen += 1
        self._gap += (now - self._last - self._gap) * max(NEW, 1 / self._seen)
        self._last = now

    def gap(self, now: float) -> float:
        """The mean in seconds; 0 before enough measurements. The time since the last free slot counts too."""
        if self._seen < ENOUGH:
            return 0.0
        return self._gap + max(0.0, now - self._last - self._gap) * NEW

    def wait(self, ahead: float, now: float) -> float:
        """Seconds until the turn of a request behind `ahead` others; 0 before enough measurements."""
        return (ahead + 1) * self.gap(now)


HIGH, NORMAL, LOW, BATCH = range(4)
BANDS = 4
Without = Set[tuple[str, str]]
"""Models and tenants whose requests are skipped."""
NO_SUBJECTS: frozenset[tuple[str, str]] = frozenset()


class Ticket:
    """A waiting request. `due` is the end of its wait; `tokens` is its charge at its turn."""

    __slots__ = ("band", "due", "model", "tenant", "tokens")

    def __init__(self, tenant: str, band: int, due: float, tokens: float, model: str = "") -> None:
        self.model = model
        self.tenant = tenant
        self.band = band
        self.due = due
        self.tokens = tokens


T = TypeVar("T", bound=Ticket)


class QueueLane(Generic[T]):
    """One tenant's requests of one band."""

    __slots__ = ("_models", "_pushed", "_tenant", "_tickets", "_urgency")

    def __init__(self, tenant: str) -> None:
        self._tenant = tenant
        self._models: Counter[str] = Counter()
        self._tickets: OrderedDict[T, None] = OrderedDict()  # by arrival, with direct access to the last
        self._urgency: list[tuple[float, int, T]] = []  # a heap; removed tickets remain until they reach the top
        self._pushed = 0

    def __len__(self) -> int:
        return len(self._tickets)

    def __iter__(self) -> Iterator[T]:
        return iter(self._tickets)

    def __contains__(self, ticket: T) -> bool:
        return ticket in self._tickets

    def push(self, ticket: T) -> None:
        self._pushed += 1
        self._tickets[ticket] = None
        self._models[ticket.model] += 1
        heappush(self._urgency, (ticket.due, self._pushed, ticket))

    def remove(self, ticket: T) -> None:
        del self._tickets[ticket]
        self._models[ticket.model] -= 1
        if not self._models[ticket.model]:
            del self._models[ticket.model]
        if len(self._urgency) > 2 * len(self._tickets) + 16:
            self._urgency = [entry for entry in self._urgency if entry[2] in self._tickets]
            heapify(self._urgency)

    def first(self, without: Without) -> T:
        """The ticket outside `without` that is due first; among equals, the oldest."""
        while (ticket := self._urgency[0][2]) not in self._tickets:
            heappop(self._urgency)
        if not without or (ticket.model, ticket.tenant) not in without:
            return ticket
        waiting = (entry for entry in self._urgency if entry[2] in self._tickets)
        return min(entry for entry in waiting if (entry[2].model, entry[2].tenant) not in without)[2]

    def waits(self, without: Without) -> bool:
        """Whether a ticket outside `without` waits."""
        return not without or any((model, self._tenant) not in without for model in self._models)

    def newest(self) -> T:
        return next(reversed(self._tickets))


class Band(Generic[T]):
    """All requests of one priority. `turns` are the turns that it earned while a higher band was served."""

    __slots__ = ("counter", "lanes", "size", "turns")

    def __init__(self) -> None:
        self.counter = VirtualTokenCounter()
        self.lanes: dict[str, QueueLane[T]] = {}  # only of waiting tenants
        self.size = 0
        self.turns = 0.0

    def push(self, ticket: T) -> None:
        lane = self.lanes.get(ticket.tenant)
        if lane is None:
            self.counter.join(ticket.tenant, self.lanes)
            lane = self.lanes[ticket.tenant] = QueueLane(ticket.tenant)
        lane.push(ticket)
        self.size += 1

    def remove(self, ticket: T) -> None:
        lane = self.lanes[ticket.tenant]
        lane.remove(ticket)
        self.size -= 1
        if not lane:
            self.counter.leave(ticket.tenant)
            del self.lanes[ticket.tenant]
        if not self.size:
            self.turns = 0.0

    def waits(self, without: Without) -> bool:
        return self.size > 0 and (not without or any(lane.waits(without) for lane in self.lanes.values()))

    def first(self, without: Without) -> T:
        lanes = {name for name, lane in self.lanes.items() if lane.waits(without)} if without else self.lanes
        return self.lanes[self.counter.next(lanes)].first(without)


class FairQueue(Generic[T]):
    """All waiting requests. `size` is read for every request of a pool, so it is a plain number.

    `lower` is the part of a turn that each lower band earns with each turn of a higher one.
    """

    __slots__ = ("_bands", "lower", "shares", "size")

    def __init__(self) -> None:
        self._bands: tuple[Band[T], ...] = tuple(Band() for _ in range(BANDS))
        self.size = 0
        self.lower = 0.0
        self.shares: Mapping[str, float] = {}

    def configure(self, shares: Mapping[str, float], lower: float) -> None:
        """Set the shares by tenant, from the next charge on. Waiting requests retain their positions."""
        self.shares = shares
        self.lower = lower
        for band in self._bands:
            band.counter.keep({*shares, *band.lanes})

    def __iter__(self) -> Iterator[T]:
        return (ticket for band in self._bands for lane in band.lanes.values() for ticket in lane)

    def __contains__(self, ticket: T) -> bool:
        lane = self._bands[ticket.band].lanes.get(ticket.tenant)
        return lane is not None and ticket in lane

    def depths(self) -> list[int]:
        """The number of waiting requests by band."""
        return [band.size for band in self._bands]

    def push(self, ticket: T) -> None:
        self._bands[ticket.band].push(ticket)
        self.size += 1

    def remove(self, ticket: T) -> None:
        """Remove a waiting request. Raises KeyError if it does not wait."""
        self._bands[ticket.band].remove(ticket)
        self.size -= 1

    # ── turns ─────────────────────────────────────────────────────────────────────────────────────────

    def waits(self, without: Without) -> bool:
        """Whether a request outside `without` waits."""
        return self.size > 0 and any(band.waits(without) for band in self._bands)

    def next(self, without: Without = NO_SUBJECTS) -> T:
        """The next request outside `without`. Raises ValueError if no request waits."""
        waiting = [band for band in self._bands if band.waits(without)]
        if not waiting:
            raise ValueError("no request waits")
        for band in reversed(waiting[1:]):
            if band.turns >= 1.0:
                return band.first(without)
        return waiting[0].first(without)

    def serve(self, ticket: T) -> None:
        """Remove the request that `next` returned, and charge its tenant."""
        top, *lower = (band for band in self._bands if band.size)
        for band in lower:
            if band is not self._bands[BATCH]:
                band.turns += self.lower
        mine = self._bands[ticket.band]
        if mine is not top:
            mine.turns = max(0.0, mine.turns - 1.0)  # it may have used the turn of a blocked higher band
        self.charge(ticket.tenant, ticket.band, ticket.tokens)
        self.remove(ticket)

    def charge(self, tenant: str, band: int, tokens: float) -> None:
        """Charge a tenant for a request's service beyond its first charge; the amount may be negative."""
        self._bands[band].counter.charge(tenant, tokens, self.shares.get(tenant, 1.0))

    # ── admission ─────────────────────────────────────────────────────────────────────────────────────

    def victim(self, tenant: str, band: int) -> T | None:
        """The request to evict for a new one; None if no request has a lower rank."""
        lowest = next(i for i in reversed(range(BANDS)) if self._bands[i].size)
        if lowest < band:
            return None
        lanes = self._bands[lowest].lanes
        longest = max(lanes, key=lambda name: len(lanes[name]) / self.shares.get(name, 1.0))
        if lowest == band:
            mine = (len(lanes.get(tenant, ())) + 1) / self.shares.get(tenant, 1.0)
            if len(lanes[longest]) / self.shares.get(longest, 1.0) <= mine:
                return None
        return lanes[longest].newest()

    def ahead(self, tenant: str, band: int) -> float:
        """The estimated number of requests before a new one: all of higher bands, and in its own band those that get
        a turn before its tenant, by its share, reaches its last request."""
        higher = sum(above.size for above in self._bands[:band])
        mine = self._bands[band]
        share = self.shares.get(tenant, 1.0)
        others = sum(self.shares.get(name, 1.0) for name in mine.lanes if name != tenant)
        own = len(mine.lanes.get(tenant, ()))
        return higher + min(mine.size, own + (own + 1) * others / share)
