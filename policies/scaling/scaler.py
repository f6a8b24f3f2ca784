"""The number of replicas of a pool, with its reason, and the servers that are awake."""

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import count, islice
from math import ceil, exp, sqrt


@dataclass(frozen=True, slots=True)
class ScalingFacts:
    """The measurements of one interval, which ends now."""

    demand: float
    """Requests in progress and in the queue: the mean over the interval."""
    waiting: int = 0
    """Requests in the queue now."""
    ready: int = 0
    """Replicas that serve requests."""
    starting: int = 0
    """Replicas that have begun to start."""
    begun: int = 0
    """Requests that left the queue in the interval."""
    late: int = 0
    """Of `begun`, the requests that waited longer than the objective."""
    occupancy: float = 0.0
    """The mean share of KV caches or batches in use, of the replicas that report it."""
    floor: int = 0
    """Replicas that a schedule requires now."""


@dataclass(frozen=True, slots=True)
class ScalingRules:
    """Times are seconds."""

    places: float
    """Requests that one replica serves at the same time."""
    least: int = 1
    """Replicas that always run. With 0, the pool scales to zero."""
    most: int = 10
    """Replicas that never are exceeded."""
    wait: float = 1.0
    """The objective: the longest time in the pool's queue."""
    late: float = 0.01
    """The share of requests that may wait longer than `wait`."""
    occupancy: float = 0.9
    """The share of a replica's KV cache or batch that may be in use before a replica is added."""
    hold: float = 600.0
    """A replica is removed when this time has passed without a need for it."""
    idle: float = 600.0
    """The last replica is removed after this time without a request."""

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.most:
            raise ValueError(f"`least` must be between 0 and `most` ({self.most}), not {self.least}")
        if self.places <= 0 or not 0 < self.late < 1 or not 0 < self.occupancy <= 1:
            raise ValueError("`places` must be positive, `late` between 0 and 1, `occupancy` above 0 and at most 1")
        if min(self.wait, self.hold, self.idle) < 0:
            raise ValueError("`wait`, `hold` and `idle` must not be negative")


MEAN = 60.0
"""Seconds of the mean's memory."""
RECENT = 10.0
"""Seconds of the recent level's memory."""
GAIN = 0.02
"""The change of the margin for one late request."""
FIRST = 2.0
"""The margin before any request was measured."""
SPREAD = 1800.0
"""Seconds of the variance's memory."""
LEAST, MOST = -2.0, 8.0
"""Bounds of the margin in standard deviations, so that a long calm or an outage is forgotten soon."""


class Demand:
    """The measured demand of one pool, in simultaneous requests."""

    __slots__ = ("_late", "_mean", "_recent", "_variance", "margin")

    def __init__(self, late: float, margin: float = FIRST) -> None:
        self._late = late
        self._mean: float | None = None
        self._recent = 0.0
        self._variance = 0.0
        self.margin = margin

    @property
    def required(self) -> float:
        """The simultaneous requests that the pool should have places for."""
        mean = self._mean or 0.0
        return max(mean + self.margin * sqrt(mean), self._recent, 0.0)

    @property
    def largest_margin(self) -> float:
        """The upper bound of the margin, in square roots of the mean."""
        return MOST * max(1.0, sqrt(self._variance / max(self._mean or 0.0, 1.0)))

    @property
    def caution(self) -> float:
        """The share of `hold` that the objective needs: a quarter at the least margin, all of it from `FIRST` on."""
        return min(2 ** ((self.margin - FIRST) / 2), 1.0)

    def observe(self, demand: float, seconds: float) -> None:
        """Add the mean demand of an interval. The clock may stand still; it does not run backwards."""
        if self._mean is None:
            self._mean = self._recent = demand
            return
        self._mean += (1 - exp(-seconds / MEAN)) * (demand - self._mean)
        self._recent += (1 - exp(-seconds / RECENT)) * (demand - self._recent)
        self._variance += (1 - exp(-seconds / SPREAD)) * ((demand - self._mean) ** 2 - self._variance)

    def adapt(self, begun: int, late: int) -> None:
        """Adapt the margin to the requests that left the queue."""
        change = GAIN * (late - self._late * begun)
        self.margin = min(max(self.margin + change, LEAST), self.largest_margin)


def resized(running: Collection[int], ready: Collection[int], replicas: int) -> tuple[int, ...]:
    """As many numbers as `replicas`: the lowest free ones are added; removed are those that do not serve, then the
    highest."""
    order = sorted(running, key=lambda number: (number not in ready, number))[:replicas]
    free = (number for number in count() if number not in running)
    return tuple(sorted((*order, *islice(free, max(0, replicas - len(order))))))


@dataclass(frozen=True, slots=True)
class SleepFacts:
    """One server."""

    address: str
    reachable: bool = True
    failing: bool = False
    """Whether its last order failed."""
    asleep: bool = False


def chosen(servers: Iterable[SleepFacts], replicas: int) -> tuple[str, ...]:
    """The addresses of the servers that should be awake, as many as `replicas`.

    Servers that work come first, then those that are awake, then the written order. Gateways with the same list
    therefore choose the same servers, and a smaller choice is a part of a larger one.
    """
    order = sorted(servers, key=lambda server: (not server.reachable, server.failing, server.asleep))
    return tuple(server.address for server in order[:replicas])


@dataclass(frozen=True, slots=True)
class ScalingDecision:
    """The number of replicas, and the reason for it in words."""

    replicas: int
    reason: str


class Scaler:
    """The state of one pool's scaling. It survives a reload with `change_rules`."""

    def __init__(self, rules: ScalingRules) -> None:
        self._rules = rules
        self._demand = Demand(rules.late)
        self._needs: deque[tuple[float, int]] = deque()  # of the last `hold` seconds; each is larger than the next
        self._last: float | None = None
        self._requested: float | None = None

    @property
    def margin(self) -> float:
        """The margin over the mean demand, in its square roots."""
        return self._demand.margin

    @property
    def largest_margin(self) -> float:
        """The upper bound of the margin."""
        return self._demand.largest_margin

    def change_rules(self, rules: ScalingRules) -> None:
        """Apply new rules to the measurements so far."""
        margin = self._demand.margin
        if rules.late != self._rules.late:
            self._demand = Demand(rules.late, margin)
        self._rules = rules

    def desired(self, facts: ScalingFacts, now: float) -> ScalingDecision:
        """The replicas that the pool should have. `now` is monotonic seconds; intervals may differ in length."""
        now = now if self._last is None else max(now, self._last)
        seconds = 0.0 if self._last is None else now - self._last
        self._last = now
        if facts.demand > 0 or facts.waiting or (self._requested is None and facts.ready):
            self._requested = now
        self._demand.observe(facts.demand, seconds)
        self._demand.adapt(facts.begun, facts.late)
        need, reason = self._need(facts, now)
        return self._bounded(facts, *self._held(need, reason, facts, now))

    def _need(self, facts: ScalingFacts, now: float) -> tuple[int, str]:
        rules = self._rules
        if self._requested is None:
            return 0, "no request so far"
        if facts.demand == 0 and not facts.waiting and now - self._requested >= rules.idle:
            return 0, f"no request for {rules.idle:g} s"
        required = self._demand.required
        need = max(1, ceil(required / rules.places))
        reason = f"{required:.1f} simultaneous requests at {rules.places:g} a replica"
        crowded = ceil(facts.ready * facts.occupancy / rules.occupancy) if facts.occupancy <= 1 else facts.ready + 1
        if crowded > need:
            return crowded, f"replicas are {facts.occupancy:.0%} occupied, {rules.occupancy:.0%} is the limit"
        return need, reason

    def _held(self, need: int, reason: str, facts: ScalingFacts, now: float) -> tuple[int, str]:
        """The largest need of the last `hold` seconds; 0 takes effect at once, as `idle` has passed."""
        needs = self._needs
        while needs and needs[-1][1] <= need:
            needs.pop()
        needs.append((now, need))
        hold = self._rules.hold * self._demand.caution
        while needs[0][0] < now - hold:
            needs.popleft()
        if need == 0:
            needs.clear()
            return 0, reason
        since, most = needs[0]
        if most > need and facts.ready + facts.starting > need:
            return most, f"{most} were needed {now - since:.0f} s ago, and a replica is held for {hold:.0f} s"
        return need, reason

    def _bounded(self, facts: ScalingFacts, need: int, reason: str) -> ScalingDecision:
        rules = self._rules
        least = max(rules.least, min(facts.floor, rules.most))
        if need < least:
            name = "`least`" if least == rules.least else "the schedule"
            return ScalingDecision(least, f"{name} is {least}; {need} would do: {reason}")
        if need > rules.most:
            return ScalingDecision(rules.most, f"`most` is {rules.most}; {need} are needed: {reason}")
        return ScalingDecision(need, reason)
