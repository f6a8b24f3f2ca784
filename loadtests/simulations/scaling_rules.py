"""The rules for replicas that are compared: ours, Knative's and Ray Serve's, each with its own measurements."""

from collections import deque
from collections.abc import Sequence
from math import ceil
from typing import Protocol

from policies.scaling.scaler import Scaler, ScalingFacts, ScalingRules


class Rule(Protocol):
    """A rule that is evaluated every `tick` seconds."""

    tick: float

    def desired(self, facts: ScalingFacts, now: float) -> int:
        """The replicas that the rule demands."""


class Headrace:
    """The rule of `policies.scaling`."""

    tick = 2.0

    def __init__(self, rules: ScalingRules) -> None:
        self.wait = rules.wait
        self.scaler = Scaler(rules)

    def desired(self, facts: ScalingFacts, now: float) -> int:
        return self.scaler.desired(facts, now).replicas


class Knative:
    """Knative's pod autoscaler with its defaults, on concurrency (`kpa` and `config-autoscaler` of its documentation).

    The mean concurrency of 60 s, at 70 % of a replica's places. Panic: if 6 s demand twice the ready replicas, the rule
    follows those 6 s and removes nothing for 60 s. Per evaluation it at most halves the replicas.
    """

    tick = 2.0
    STABLE, PANIC = 60.0, 6.0
    TARGET = 0.7

    def __init__(self, places: float, least: int, most: int) -> None:
        self._target = places * self.TARGET
        self._least, self._most = least, most
        self._stable: deque[float] = deque(maxlen=int(self.STABLE / self.tick))
        self._recent: deque[float] = deque(maxlen=int(self.PANIC / self.tick))
        self._panicked: float | None = None
        self._highest = 0

    def desired(self, facts: ScalingFacts, now: float) -> int:
        self._stable.append(facts.demand)
        self._recent.append(facts.demand)
        ready = max(1, facts.ready)
        steady, panic = (self._limited(window, ready) for window in (self._stable, self._recent))
        if panic >= 2 * ready:
            if self._panicked is None:
                self._highest = facts.ready
            self._panicked = now
        elif self._panicked is not None and now - self._panicked >= self.STABLE:
            self._panicked = None
        if self._panicked is not None:
            steady = self._highest = max(self._highest, panic)
        return min(max(steady, self._least), self._most)

    def _limited(self, window: Sequence[float], ready: int) -> int:
        return min(max(ceil(sum(window) / len(window) / self._target), ready // 2), ready * 1000)


class RayServe:
    """Ray Serve's default policy (`AutoscalingConfig` of its documentation).

    The mean of ongoing requests over 30 s, at 2 of 5 places of a replica. It adds after 30 s and removes after 600 s in
    which each evaluation demanded that.
    """

    tick = 1.0
    TARGET = 2 / 5
    WINDOW, UP, DOWN = 30.0, 30.0, 600.0

    def __init__(self, places: float, least: int, most: int) -> None:
        self._target = places * self.TARGET
        self._least, self._most = least, most
        self._ongoing: deque[float] = deque(maxlen=int(self.WINDOW / self.tick))
        self._streak = 0

    def desired(self, facts: ScalingFacts, now: float) -> int:
        self._ongoing.append(facts.demand)
        current = facts.ready + facts.starting
        mean = sum(self._ongoing) / len(self._ongoing)
        demanded = min(max(ceil(mean / self._target), self._least), self._most)
        if demanded > current:
            self._streak = max(self._streak, 0) + 1
        elif demanded < current:
            self._streak = min(self._streak, 0) - 1
        else:
            self._streak = 0
        if -self.DOWN / self.tick <= self._streak <= self.UP / self.tick:
            return current
        self._streak = 0
        return demanded
