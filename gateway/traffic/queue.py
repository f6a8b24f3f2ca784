"""Requests that wait for a slot in a full pool, and the assignment of free slots to them."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

from adapters.call import Call
from adapters.errors import ClientGone, DeadlineError, InferenceError, NonePermitted, Overloaded, Unavailable
from adapters.requests import ModelRequest
from adapters.types import Usage
from config.schema.config import Priority, QueueConfig, TenantConfig
from gateway.telemetry.histogram import Histogram
from gateway.traffic import spans
from gateway.traffic.cold import ColdStart
from gateway.traffic.endpoint import Endpoint, subject_of
from policies.queueing import BATCH, HIGH, LOW, NORMAL, DrainRate, FairQueue, Ticket, work

PRIORITY_HEADER = "x-headrace-priority"
BAND: dict[str | None, int] = {"high": HIGH, "normal": NORMAL, "low": LOW, "batch": BATCH}
PRIORITIES: tuple[Priority, ...] = ("high", "normal", "low", "batch")  # by band
WAITS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
SOON, LOOK_SECONDS = 0.001, 1.0
"""Shortest and longest seconds until the next check for changes by time alone, such as an open breaker."""
SOONEST, LATEST = 1.0, 300.0  # bounds of `retry-after`, in seconds

End = Literal["served", "full", "late", "shed", "timeout", "deadline", "cancelled", "unavailable"]


def priority_of(own: Priority, headers: Mapping[str, str]) -> Priority:
    """The priority of a request. A client may lower it; any other value of its header has no effect."""
    requested = headers.get(PRIORITY_HEADER)
    return PRIORITIES[max(BAND[own], BAND.get(requested, HIGH))] if requested is not None else own


class Places(Protocol):
    """The source of slots: a pool."""

    def lease(self, request: ModelRequest, call: Call, now: float) -> Endpoint | None:
        """An endpoint, with the request counted there; None when all are full. Raises `Unavailable`."""

    def give_back(self, endpoint: Endpoint, request: ModelRequest, call: Call, error: InferenceError) -> None:
        """End a lease whose request was not sent."""

    @property
    def is_cold(self) -> bool:
        """Whether requests wait for the first replica."""

    def has_room(self, now: float) -> bool:
        """Whether another request may get a slot, when the next one of the queue gets none."""

    def next_change(self, now: float) -> float:
        """Seconds until an ineligible endpoint may become eligible; inf if only a finishing request can change that."""


class QueuedRequest(Ticket):
    """One waiting request. When `turn` ends without an error, the request has a slot at `endpoint`."""

    __slots__ = ("call", "end", "endpoint", "request", "turn")

    def __init__(self, request: ModelRequest, call: Call, band: int, due: float) -> None:
        named = subject_of(request, call).named
        super().__init__(call.tenant, band, due, work(request.prompt_tokens, 0, request.rows), named)
        self.request = request
        self.call = call
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.endpoint: Endpoint | None = None
        self.end: End = "served"

    @property
    def place(self) -> Endpoint:
        """The endpoint of its slot."""
        assert self.endpoint is not None, "a turn without a place"
        return self.endpoint


class PoolQueue:
    """The queue of a pool. It outlives reloads, and so do its waiting requests.

    A free slot is assigned and counted for the next request at once, so that no newer request can take it.
    `ends` counts each request once, by priority and outcome; `waits` has the seconds of the requests that received a
    slot. `places` is the pool in force.
    """

    def __init__(
        self, name: str, config: QueueConfig, tenants: Sequence[TenantConfig], clock: Callable[[], float]
    ) -> None:
        self.name = name
        self.line: FairQueue[QueuedRequest] = FairQueue()
        self.rate = DrainRate()
        self.ends: Counter[tuple[Priority, End]] = Counter()
        self.waits = Histogram(WAITS)
        self._clock = clock
        self.places: Places
        self.cold: ColdStart | None = None
        """The bounds of requests that wait for the first replica of the pool, if it scales to zero."""
        self.size = 0
        """Bytes of the waiting requests."""
        self._look: asyncio.TimerHandle | None = None
        self._look_at = 0.0
        self.configure(config, tenants)

    def configure(self, config: QueueConfig, tenants: Sequence[TenantConfig]) -> None:
        """Apply a configuration. Waiting requests retain their position, priority and time."""
        self._config = config
        self._priorities = {tenant.name: tenant.priority for tenant in tenants}
        self.line.configure({tenant.name: tenant.share for tenant in tenants}, config.lower_priorities)

    # ── one request ───────────────────────────────────────────────────────────────────────────────────

    async def wait(self, request: ModelRequest, call: Call) -> QueuedRequest:
        """Wait for a slot.

        Raises `Overloaded` if the queue is full, the wait would be too long or the time limit has passed,
        `DeadlineError` at the request's own deadline, `Unavailable` if no endpoint is left.
        """
        began = self._clock()
        waiter = self._enter(request, call, began)
        timer = asyncio.get_running_loop().call_later(waiter.due - began, self._expire, waiter, call)
        call.trace.queued(began)
        try:
            await waiter.turn
        except asyncio.CancelledError:
            waiter.end = "cancelled"
            self._give_back(waiter)
            raise
        finally:
            timer.cancel()
            self.size -= request.size
            now = self._clock()
            waited = now - began
            call.trace.dequeued(now)
            if call.trace.spans is not None:
                spans.waited(call.trace.spans, call, self.name, began, now, waiter.end)
            self.ends[PRIORITIES[waiter.band], waiter.end] += 1
        self.waits.observe(waited)
        return waiter

    def settle(self, request: ModelRequest, call: Call, waiter: QueuedRequest | None, usage: Usage | None) -> None:
        """Charge the tenant for the work of a request before its slot is free; `usage` is None without an answer.

        A request that never waited is charged at its end only, and only while other requests wait.
        """
        if waiter is not None:
            band, charged = waiter.band, waiter.tokens
        elif self.line.size:
            band, charged = self._band(call), 0.0
        else:
            return
        took = 0.0
        if usage is not None:
            prompt, rows = usage.prompt_tokens or request.prompt_tokens, usage.rows or request.rows
            took = work(prompt, usage.completion_tokens, rows)
        self.line.charge(call.tenant, band, took - charged)

    def _enter(self, request: ModelRequest, call: Call, now: float) -> QueuedRequest:
        line, band = self.line, self._band(call)
        if self.cold is not None and self.places.is_cold:
            due = call.deadline.at
            self._admit_cold(self.cold, request, call.tenant, band, due, now)
        else:
            due = min(call.deadline.at, now + self._config.timeout)
            self._admit(call.tenant, band, due, now)
        if not line.size:
            self.rate.start(now)
        waiter = QueuedRequest(request, call, band, due)
        line.push(waiter)
        self.size += request.size
        # A slot may be free: a request that began before a reload saw the old endpoints only, and an endpoint may
        # require a pause from the tenants of the waiting requests only.
        self._hand_out()
        return waiter

    def _admit(self, tenant: str, band: int, due: float, now: float) -> None:
        """Make room for a request. Raises `Overloaded`."""
        line = self.line
        ahead = line.ahead(tenant, band)
        wait = self.rate.wait(ahead, now)
        if ahead >= 1 and now + wait > due:  # the first request always enters: its wait measures the rate
            raise self._refusal(band, "late", wait)
        if line.size >= self._config.max:
            victim = line.victim(tenant, band)
            if victim is None:
                raise self._refusal(band, "full", wait)
            self._turn_away(victim, "shed", self._overloaded("another request needed its place", wait, "queue_shed"))

    def _admit_cold(
        self, cold: ColdStart, request: ModelRequest, tenant: str, band: int, due: float, now: float
    ) -> None:
        """Make room for a request that waits for the first replica. Raises `Unavailable`."""
        if cold.is_too_late(due, now):
            self.ends[PRIORITIES[band], "late"] += 1
            raise cold.error("it will not be ready within the request's deadline", now)
        if cold.is_full(self.line.size + 1, self.size + request.size):
            victim = self.line.victim(tenant, band) if self.line.size else None
            if victim is None or cold.is_full(self.line.size, self.size + request.size - victim.request.size):
                self.ends[PRIORITIES[band], "full"] += 1
                raise cold.error("too many requests wait for it", now)
            self._turn_away(victim, "shed", cold.error("another request needed its place", now))

    def _band(self, call: Call) -> int:
        return BAND[priority_of(call.priority or self._priorities.get(call.tenant, "normal"), call.headers)]

    def _expire(self, waiter: QueuedRequest, call: Call) -> None:
        if waiter.turn.done():
            return
        if waiter.due >= call.deadline.at:
            late: InferenceError = DeadlineError("The request's deadline has passed.")
            if self.cold is not None and self.places.is_cold:
                late = self.cold.error("it is not ready within the request's deadline", self._clock())
            self._turn_away(waiter, "deadline", late)
        else:
            wait = self.rate.wait(self.line.size, self._clock())
            late = self._overloaded("no place became free in time", wait, "queue_timeout")
            late.code = "queue_timeout"
            self._turn_away(waiter, "timeout", late)

    def _give_back(self, waiter: QueuedRequest) -> None:
        """Release a request whose client disconnected while it waited or just after it received its slot."""
        if waiter.endpoint is not None:
            self.settle(waiter.request, waiter.call, waiter, None)
            gone = ClientGone("the client closed the connection")
            self.places.give_back(waiter.endpoint, waiter.request, waiter.call, gone)
        elif waiter in self.line:
            self.line.remove(waiter)

    # ── slots ─────────────────────────────────────────────────────────────────────────────────────────

    def freed(self) -> None:
        """A request has ended at an endpoint."""
        if self.line.size and self._hand_out():
            self.rate.freed(self._clock())

    def changed(self) -> None:
        """The number of slots may have changed."""
        if self.line.size:
            self._hand_out()

    def _hand_out(self) -> bool:
        """Assign free slots to the next requests. Returns whether any was assigned."""
        now, line, handed = self._clock(), self.line, False
        resting: set[tuple[str, str]] = set()
        while line.waits(resting):
            waiter = line.next(resting)
            if waiter.turn.done():  # its client has just left
                line.remove(waiter)
                continue
            try:
                endpoint = self.places.lease(waiter.request, waiter.call, now)
            except NonePermitted as error:  # of this request's proxy, which other requests need not have
                self._turn_away(waiter, "unavailable", error)
                continue
            except Unavailable as error:
                self._turn_all_away(error)
                break
            if endpoint is None:
                if not self.places.has_room(now):
                    break
                subject = subject_of(waiter.request, waiter.call)
                resting.add((subject.named, subject.tenant))  # another request may use the slot
                continue
            line.serve(waiter)
            waiter.endpoint = endpoint
            waiter.turn.set_result(None)
            handed = True
        self._look_later(now)
        return handed

    def _look_later(self, now: float) -> None:
        if not self.line.size:
            return
        delay = min(LOOK_SECONDS, max(SOON, self.places.next_change(now)))
        if self._look is not None:
            if self._look_at <= now + delay:
                return
            self._look.cancel()
        self._look_at = now + delay
        self._look = asyncio.get_running_loop().call_later(delay, self._look_now)

    def _look_now(self) -> None:
        self._look = None
        self.changed()

    # ── rejections ────────────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        """Reject all waiting requests: the pool has no queue any more."""
        self._turn_all_away(self._overloaded("the pool no longer has a queue", SOONEST, "queue_removed"))

    def stop(self) -> None:
        """Cancel the timer, at the end of the gateway."""
        if self._look is not None:
            self._look.cancel()
            self._look = None

    def _turn_all_away(self, error: Unavailable) -> None:
        for waiter in list(self.line):
            own = type(error)(error.message, retry_after=error.retry_after)
            own.code, own.refusal = error.code, error.refusal
            self._turn_away(waiter, "unavailable", own)

    def _turn_away(self, waiter: QueuedRequest, end: End, error: InferenceError) -> None:
        self.line.remove(waiter)
        if not waiter.turn.done():
            waiter.end = end
            waiter.turn.set_exception(error)

    def _refusal(self, band: int, end: End, wait: float) -> Overloaded:
        self.ends[PRIORITIES[band], end] += 1
        if end == "late":
            return self._overloaded("the wait would be too long", wait, "queue_late")
        return self._overloaded("the queue is full", wait, "queue_full")

    def _overloaded(self, why: str, wait: float, cause: str) -> Overloaded:
        """The error with `retry-after`: the time in which the requests ahead will be served."""
        error = Overloaded(
            f"{self.name}: every endpoint is full, and {why}.", retry_after=min(max(wait, SOONEST), LATEST)
        )
        error.because(cause, pool=self.name, waiting=self.line.size)
        return error
