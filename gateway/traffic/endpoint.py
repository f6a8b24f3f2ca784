"""One server address: what is known of its health, and how many requests it has."""

from typing import Literal, Protocol

from adapters.base import Adapter
from adapters.errors import InferenceError
from policies.breaker import Breaker
from policies.health import ramp
from policies.latency import PeakEwma
from policies.load import Signal
from policies.outliers import Outliers, Tally

Health = Literal["unknown", "healthy", "unhealthy"]


class Waiting(Protocol):
    """Those that wait for a place at an endpoint."""

    def freed(self) -> None:
        """A request has ended there."""

    def changed(self) -> None:
        """Its health has."""


class Endpoint:
    """Outlives reloads, so that a new configuration does not forget who is ill.

    `health` is what probes say; the breaker and the latency are what traffic says. `weight` is the one in
    force, which climbs to the configured one in a slow start.
    """

    __slots__ = (
        "_bad", "_good", "_since", "_slow_start", "_weight", "adapter", "address", "breaker", "health", "id",
        "in_flight", "latency", "outliers", "probe_error", "signal", "tally", "waiting", "warming", "weight", "zone",
    )  # fmt: skip

    def __init__(self, id_: str, adapter: Adapter, breaker: Breaker, weight: float = 1.0, address: str = "") -> None:
        self.id = id_
        self.address = address or id_
        self.adapter = adapter
        self.breaker = breaker
        self.latency = PeakEwma()
        self.signal = Signal()
        self.tally = Tally()
        self.outliers: Outliers | None = None
        self.zone: str | None = None
        self.in_flight = 0
        self.waiting: Waiting | None = None
        self._since: float | None = None
        self.configure(weight, 0.0)
        self.health: Health = "unknown"
        self.probe_error = ""
        self._good = 0
        self._bad = 0

    def configure(self, weight: float, slow_start: float) -> None:
        """Its share of the pool, and the seconds in which it takes that up after it came or came back."""
        self.weight = self._weight = weight
        self._slow_start = slow_start
        self.warming = True

    @property
    def configured_weight(self) -> float:
        """The weight at the end of a slow start."""
        return self._weight

    def join(self) -> None:
        """It comes to others that work: it is to be picked once a health check has found it well."""
        if self.health == "unknown":
            self.health = "unhealthy"
            self.probe_error = "Not checked yet."

    def warm(self, now: float) -> None:
        """It may be picked, and is still `warming`. That begins here and not before: an idle pool warms nobody."""
        if self._since is None:
            self._since = now
        level = ramp(now - self._since, self._slow_start)
        self.weight = self._weight * level
        self.warming = level < 1.0

    def came_back(self) -> None:
        """Its slow start begins anew."""
        self._since = None
        self.warming = True

    def begin(self, now: float) -> None:
        """A request was given to it."""
        self.in_flight += 1
        self.breaker.begin(now)
        self.latency.asked(now)

    def end(self, error: BaseException | None, now: float) -> None:
        """That request is over. Only what the endpoint is to blame for counts against it."""
        self.in_flight -= 1
        self._judge(error, now)
        if self.waiting is not None:
            self.waiting.freed()

    def _judge(self, error: BaseException | None, now: float) -> None:
        was_out = self.breaker.is_open
        failed = False
        if error is None:
            self.breaker.success(now)
        elif isinstance(error, InferenceError) and error.blames_endpoint:
            self.breaker.failure(now)
            failed = True
            if error.retry_after is not None:
                self.breaker.rest(error.retry_after, now)
        elif isinstance(error, InferenceError) and error.kind == "caller":
            self.breaker.success(now)  # it answered, and rightly
        else:
            self.breaker.abandoned(now)
            return
        if self.outliers is not None and not was_out:
            self.outliers.ended(self, now, failed=failed)
        if was_out and not self.breaker.is_open:
            self.came_back()

    def failed_to_begin(self, error: BaseException, seconds: float, now: float) -> None:
        """That request ended with nothing answered, after that long."""
        self.latency.unanswered(seconds, now)
        self.end(error, now)

    def probed(self, error: str, *, healthy_after: int, unhealthy_after: int) -> bool:
        """The result of a health check, empty for a good one; True when that changed its health."""
        before = self.health
        self.probe_error = error
        if error:
            self._bad, self._good = self._bad + 1, 0
            if self._bad >= unhealthy_after:
                self.health = "unhealthy"
        else:
            self._good, self._bad = self._good + 1, 0
            if self._good >= healthy_after:
                if self.health == "unhealthy":
                    self.came_back()
                self.health = "healthy"
        if self.health != before and self.waiting is not None:
            self.waiting.changed()
        return self.health != before
