"""One server address: its health, its breaker, and its requests in flight."""

from typing import Literal, NamedTuple, Protocol

from adapters.base import Adapter
from adapters.call import Call
from adapters.errors import AccountRefused, CapacityError, InferenceError, ModelNotReady
from adapters.reason import Reason
from adapters.requests import ModelRequest
from adapters.spans import Span
from adapters.wire.failure_text import Scrubber
from policies.balancing.signals import PeakEwma, Signal
from policies.breaker import Breaker
from policies.health import Outliers, Tally, ramp
from policies.refusals import Refusals

Health = Literal["unknown", "healthy", "unhealthy"]
ACCOUNT_REST = 60.0
"""Longest seconds for which an endpoint whose account is exhausted receives no requests."""


class RefusalKey(NamedTuple):
    """The requests that a refusal may concern."""

    model: str
    """The model's name as the server receives it."""
    tenant: str
    version: str = ""
    """The version that the request names: while one is loading, the others answer."""

    @property
    def named(self) -> str:
        """The model, with its version if the request names one."""
        return f"{self.model}/{self.version}" if self.version else self.model


NO_SUBJECT = RefusalKey("", "")


def subject_of(request: ModelRequest, call: Call) -> RefusalKey:
    """The model, its version and the tenant of a request."""
    return RefusalKey(request.model, call.tenant, request.version)


class WaitingRequests(Protocol):
    """Requests that wait for a slot at an endpoint."""

    def freed(self) -> None:
        """A request has ended at the endpoint."""

    def changed(self) -> None:
        """The health of the endpoint has changed."""


class Endpoint:
    """An endpoint with its state, which outlives reloads.

    `health` is the result of probes; breaker and latency are the results of requests. `weight` is the weight in
    force, which rises to the configured weight in a slow start.
    """

    __slots__ = (
        "__weakref__", "_bad", "_good", "_since", "_slow_start", "_weight", "adapter", "address", "breaker", "health",
        "id", "in_flight", "latency", "not_ready", "outliers", "place", "probe_error", "provider", "refusal",
        "refusals", "runtime", "scrubber", "several", "signal", "tally", "waiting", "warming", "weight", "zone",
    )  # fmt: skip

    def __init__(
        self, id_: str, adapter: Adapter, breaker: Breaker, weight: float = 1.0, address: str = "", place: str = ""
    ) -> None:
        self.id = id_
        self.address = address or id_
        self.place = place or self.address
        """The address, or the name of one of several accounts there: the same in every gateway and after a restart."""
        self.adapter = adapter
        self.breaker = breaker
        self.scrubber = Scrubber()
        """Removes credentials and addresses from all texts of the server, for clients and for the log."""
        self.refusals = Refusals()
        self.several = False
        """Whether it serves several models, so that a refusal may concern one of them only."""
        self.latency = PeakEwma()
        self.signal = Signal()
        self.tally = Tally()
        self.outliers: Outliers | None = None
        self.zone: str | None = None
        self.provider = "openai"
        """The provider of the server, by the names of the conventions for generative AI."""
        self.runtime = ""
        """The URL at which a bundled runtime reports its spans; empty for any other server."""
        self.in_flight = 0
        self.waiting: WaitingRequests | None = None
        self._since: float | None = None
        self.configure(weight, 0.0)
        self.health: Health = "unknown"
        self.probe_error = ""
        self.not_ready: ModelNotReady | None = None
        """The reason why the model is not ready, by the last health check."""
        self.refusal: Reason | None = None
        """Why the endpoint last refused a request, from which the reason of a pause is known."""
        self._good = 0
        self._bad = 0

    def configure(self, weight: float, slow_start: float) -> None:
        """Set the weight in the pool, and the seconds in which the endpoint reaches it after it joined or recovered."""
        self.weight = self._weight = weight
        self._slow_start = slow_start
        self.warming = True

    def moved(self, url: str) -> None:
        """Follow a bundled runtime to another address."""
        self.runtime = url
        self.scrubber = self.scrubber.at(url)

    @property
    def configured_weight(self) -> float:
        """The weight at the end of a slow start."""
        return self._weight

    def join(self) -> None:
        """Join a running pool: the endpoint becomes eligible with its first successful health check."""
        if self.health == "unknown":
            self.health = "unhealthy"
            self.probe_error = "Not checked yet."

    def warm(self, now: float) -> None:
        """Start the slow start of a `warming` endpoint when it may first be picked: an idle pool warms no endpoint."""
        if self._since is None:
            self._since = now
        level = ramp(now - self._since, self._slow_start)
        self.weight = self._weight * level
        self.warming = level < 1.0

    def came_back(self) -> None:
        """Restart the slow start."""
        self._since = None
        self.warming = True

    def allows(self, subject: RefusalKey, now: float) -> bool:
        """Whether such a request may be sent, by the results of past requests."""
        return self.breaker.allows(now) and (not self.refusals.held or self.refusals.allows(*self._key(subject), now))

    def rests(self, subject: RefusalKey, now: float) -> float:
        """Seconds of the pause that the endpoint requires of such requests; 0 for none."""
        return max(self.breaker.rests(now), self.refusals.rests(*self._key(subject), now))

    def retry_after(self, subject: RefusalKey, now: float) -> float:
        """Seconds until `allows` may return true; 0 if it does now."""
        return max(self.breaker.retry_after(now), self.refusals.retry_after(*self._key(subject), now))

    def share_left(self, model: str, now: float) -> float:
        """The share that is left of the provider's quota for a model; 1 if none is known."""
        return 1.0

    def _key(self, subject: RefusalKey) -> tuple[str, str]:
        return subject.named if self.several else subject.version, subject.tenant

    def next_change(self, now: float) -> float:
        """Seconds until time alone changes the result of `allows` or `rests` for any request; 0 if it changes
        nothing."""
        waits = (self.breaker.next_change(now), self.refusals.next_change(now))
        return min((wait for wait in waits if wait > 0), default=0.0)

    def begin(self, now: float, subject: RefusalKey = NO_SUBJECT) -> None:
        """Count a request."""
        self.in_flight += 1
        self.breaker.begin(now)
        if self.refusals.held:
            self.refusals.begin(*self._key(subject), now)
        self.latency.sent(now)

    def end(
        self, error: BaseException | None, now: float, subject: RefusalKey = NO_SUBJECT, span: Span | None = None
    ) -> None:
        """Count the end of that request. Only failures that the endpoint causes count against it. The request's span,
        if it is traced, records a change of the breaker."""
        if error is not None:
            self.scrubber.error(error)
            if isinstance(error, CapacityError):
                self.refusal = error.reason_of_refusal
        self.in_flight -= 1
        was_open = self.breaker.is_open
        self._judge(error, now, subject, was_out=was_open)
        if span is not None and self.breaker.is_open != was_open:
            span.event("breaker_closed" if was_open else "breaker_opened", now, **{"headrace.endpoint": self.id})
        if self.waiting is not None:
            self.waiting.freed()

    def _judge(self, error: BaseException | None, now: float, subject: RefusalKey, *, was_out: bool) -> None:
        failed = False
        if error is None or is_callers(error):
            self.breaker.success(now)  # the endpoint works, even if the request was wrong
            if self.refusals.held:
                self.refusals.answered(*self._key(subject), now)
        elif isinstance(error, AccountRefused) and error.scope == "server":
            self.breaker.abandoned(now)
            wait = ACCOUNT_REST if error.retry_after is None else error.retry_after
            if self.refusals.refused(*self._key(subject), wait, now, self.breaker, "server"):
                self.breaker.rest(wait, now, ACCOUNT_REST)
            return
        elif isinstance(error, InferenceError) and error.blames_endpoint and self._is_to_blame(error, now, subject):
            self.breaker.failure(now)
            failed = True
            if error.retry_after is not None:
                self.breaker.rest(error.retry_after, now)
        else:
            self.breaker.abandoned(now)
            self.refusals.abandoned(*self._key(subject), now)
            return
        if self.outliers is not None and not was_out:
            self.outliers.ended(self, now, failed=failed)
        if was_out and not self.breaker.is_open:
            self.came_back()

    def _is_to_blame(self, error: InferenceError, now: float, subject: RefusalKey) -> bool:
        """Whether the endpoint causes the failure. A refusal of one model's or one tenant's requests does not count."""
        if not isinstance(error, CapacityError):
            return True
        return self.refusals.refused(*self._key(subject), error.retry_after, now, self.breaker, error.scope)

    def failed_to_begin(
        self,
        error: BaseException,
        seconds: float,
        now: float,
        subject: RefusalKey = NO_SUBJECT,
        span: Span | None = None,
    ) -> None:
        """Count the end of a request without an answer, after `seconds`."""
        self.latency.unanswered(seconds, now)
        self.end(error, now, subject, span)

    def probed(self, error: str, *, healthy_after: int, unhealthy_after: int) -> bool:
        """Record a health check; `error` is empty for a success. Returns whether the health has changed."""
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


def is_callers(error: BaseException) -> bool:
    """Whether the endpoint works, and the request was wrong."""
    return isinstance(error, InferenceError) and error.kind == "caller" and not error.blames_endpoint
