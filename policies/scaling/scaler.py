"""The number of replicas of a pool."""

from collections import deque
from dataclasses import dataclass
from math import ceil

from policies.scaling.demand import Demand
from policies.scaling.facts import ScalingFacts
from policies.scaling.rules import ScalingRules


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
