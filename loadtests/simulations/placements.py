"""How gateways choose a replica: ours, Knative's and Ray Serve's, each with its own knowledge of the load."""

from collections.abc import Sequence
from math import ceil
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from config.schema.config import BalanceConfig
from gateway.traffic.fleet.signals import HALF_LIFE
from loadtests.simulations.regions import Replica
from policies.balancing.pickers import picker
from policies.balancing.signals import PeakEwma, Signal

SCRAPE = 1.0
"""Seconds between two reports of a replica to one gateway."""
_REQUEST: Any = SimpleNamespace(user=None, model="m", prompt=memoryview(b""))
_CALLER: Any = SimpleNamespace(tenant="t", key="k", headers={})
_UNMEASURED = PeakEwma()


class _View:
    """One replica as one gateway sees it: an endpoint that `policies.balancing` may pick.

    The report of a replica is read when it is needed, with the load at the last scrape.
    """

    __slots__ = ("_moment", "_phase", "_signal", "in_flight", "now", "replica", "scraped")
    place = ""

    def share_left(self, model: str, now: float) -> float:
        return 1.0

    weight = 1.0
    zone = None
    latency = _UNMEASURED

    def __init__(self, replica: Replica, gateway: int, places: int) -> None:
        self.replica = replica
        self.in_flight = 0
        self.now = 0.0
        self.scraped = places
        self._phase = (replica.number * 0.37 + gateway * 0.61) % 1.0 * SCRAPE
        self._signal = Signal()
        self._moment = -1.0

    @property
    def signal(self) -> Signal:
        moment = (self.now - self._phase) // SCRAPE * SCRAPE + self._phase
        if moment > self._moment and moment >= self.replica.began:
            self._moment = moment
            running, waiting = self.replica.load_at(moment)
            self._signal.report(
                running=running, waiting=waiting, cache=running / self.scraped, own=self.in_flight,
                half_life=HALF_LIFE * SCRAPE, now=moment,
            )  # fmt: skip
        return self._signal


class HeadracePlacement:
    """The pickers of `policies.balancing`: a gateway counts its own requests; with `by: load` it also reads reports."""

    def __init__(self, by: str, places: int, seed: int) -> None:
        self._picker = picker(BalanceConfig(by=cast(Any, by)))
        self._places = places
        self._rng = Random(seed)

    def place(self, gateway: int, ready: Sequence[Replica], attempt: int, now: float) -> Replica | float:
        """The picked replica, at once: a request waits at its replica."""
        rng = self._rng
        if len(ready) > 2:  # the pickers in use draw two candidates: to draw them here first saves a view of each
            first, second = int(rng.random() * len(ready)), int(rng.random() * (len(ready) - 1))
            ready = [ready[first], ready[second + (second >= first)]]
        views = [self._view(replica, gateway) for replica in ready]
        for view in views:
            view.now = now
        picked = self._picker.pick(views, _REQUEST, _CALLER, now, rng)
        picked.in_flight += 1
        return picked.replica

    def ended(self, gateway: int, replica: Replica, now: float) -> None:
        """Count the end."""
        self._view(replica, gateway).in_flight -= 1

    def _view(self, replica: Replica, gateway: int) -> _View:
        view = replica.views.get(gateway)
        if view is None:
            view = replica.views[gateway] = _View(replica, gateway, self._places)
        return cast(_View, view)


class RayServePlacement:
    """The router of Ray Serve: it probes the queues of two random replicas, which refuse more than `places` requests
    (`max_ongoing_requests`), and tries again after 25 ms, doubled up to 0.5 s."""

    FIRST, MOST = 0.025, 0.5

    def __init__(self, places: int, seed: int) -> None:
        self._places = places
        self._rng = Random(seed)

    def place(self, gateway: int, ready: Sequence[Replica], attempt: int, now: float) -> Replica | float:
        """The shorter of two queues, if it accepts the request."""
        chosen = min(self._rng.sample(ready, min(2, len(ready))), key=lambda replica: replica.load)
        if chosen.load < self._places:
            return chosen
        return min(self.FIRST * 2.0 ** min(attempt, 10), self.MOST)

    def ended(self, gateway: int, replica: Replica, now: float) -> None:
        """A replica counts its requests itself."""


class KnativePlacement:
    """Knative's activators, which take turns over their part of the pods and send a pod `places` requests at most
    (`containerConcurrency`), while the spare capacity is under the target burst capacity; beyond it the ingress sends
    requests to the pods by turns (`throttler.go`, `lb_policy.go` and the documentation of the load balancing)."""

    BURST = 211
    ACTIVATOR = 100
    LEAST = 2
    AGAIN = 0.05
    """Seconds until a waiting request looks for a free pod again. A real activator is notified; the difference is in no
    figure."""

    def __init__(self, places: int, gateways: int, seed: int) -> None:
        self._places = places
        self._gateways = gateways
        self._turns = [Random(seed + number).randrange(1 << 20) for number in range(gateways)]

    def place(self, gateway: int, ready: Sequence[Replica], attempt: int, now: float) -> Replica | float:
        """The next pod by turns."""
        capacity = len(ready) * self._places
        spare = capacity - sum([replica.running + len(replica.queue) for replica in ready])
        if spare >= self.BURST:
            self._turns[gateway] += 1
            return ready[self._turns[gateway] % len(ready)]
        activators = min(self._gateways, max(self.LEAST, ceil((capacity + self.BURST) / self.ACTIVATOR)))
        activator = gateway % activators
        part = ready[activator::activators] or [ready[activator % len(ready)]]
        for _ in part:
            self._turns[activator] += 1
            pod = part[self._turns[activator] % len(part)]
            if pod.load < self._places:
                return pod
        return self.AGAIN

    def ended(self, gateway: int, replica: Replica, now: float) -> None:
        """A pod counts its requests itself."""
