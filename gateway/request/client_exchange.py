"""The request of a client on its path: its route, its reservation, its call, its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from random import Random

from adapters.base import Answer, as_inference_error
from adapters.call import Call, CallTrace
from adapters.errors import ClientGone, ContextTooLong, InferenceError
from adapters.requests import ModelRequest
from adapters.spans import Span
from adapters.types import Usage
from gateway.auth.keys import Principal
from gateway.limits.ledger import Reservation
from gateway.request.observers import SequenceAtHome
from gateway.request.path_parts import (
    amounts_of,
    charge,
    check_fields,
    computed_before,
    deadline_of,
    facts_of,
    prepared,
    separated,
    unknown_model,
    with_guards,
)
from gateway.request.route_plan import RoutePlan
from gateway.request.services import Services
from gateway.request.snapshot import Snapshot
from gateway.request.spine import Exchange, Observer
from gateway.telemetry import Record
from gateway.telemetry.traces.span_attributes import LARGE
from gateway.traffic.queue import priority_of
from policies.routing.decision import Decision

End = Callable[[Record, BaseException | None, int | None], None]
"""Ends the exchange of a record, with the status that the client received."""


class ClientExchange(Exchange):
    """The exchange of a client."""

    __slots__ = (
        "_end", "headers", "now", "own_observers", "plan", "principal", "received", "record", "reservation",
        "rng", "snapshot", "time",
    )  # fmt: skip

    plan: RoutePlan
    reservation: Reservation
    received: ModelRequest
    """The request before the route changed it."""

    def __init__(
        self,
        services: Services,
        snapshot: Snapshot,
        principal: Principal,
        request: ModelRequest,
        headers: Mapping[str, str],
        record: Record,
        end: End,
    ) -> None:
        super().__init__(services, request)
        self.snapshot = snapshot.of_batches() if record.of_batch else snapshot
        self.principal = principal
        self.headers = headers
        self.record = record
        self.rng: Random = record.rng or services.rng
        """Draws the arms of splits."""
        self.time = services.wall()
        """Unix seconds of the decision."""
        self.now = 0.0
        """Loop time of the reservation."""
        self.own_observers: tuple[Observer, ...] = ()
        """The observers that the request has on any route."""
        self._end = end
        record.stream = request.stream

    def move_to(self, model: str) -> None:
        """Let another model of the file answer, by its own routes: the operator's choice, for which the client needs no
        right. Raises `NotFound` without a route. `move_reserved` is for a request that is reserved."""
        resolved, record = self.snapshot.catalogue.find(model), self.record
        assert resolved is not None  # the checks of the file found it
        if resolved.rules.model == self.model:
            return
        self.model = record.model = resolved.rules.model
        request = self.request.codec.rename(self.request, resolved.name or model)
        self.facts = facts_of(self.principal, request, resolved, self.headers, record.request_id, self.time)
        decision = resolved.rules.decide(self.facts, self.rng)
        if decision is None:
            raise unknown_model(model, "no_route")
        self.routes += 1
        self._follow(decision, request)

    async def rewrite_reserved(self) -> None:
        """Write a reserved request again as its route sends it: an observer has changed `received`. What was reserved
        stays, and what is sent is charged. Raises `CallerError`."""
        decision, snapshot, self.request = self.decision, self.snapshot, self.received
        if decision.rewrite is not None or decision.version:
            self.request = await prepared(decision, self.request)
        if self.request.sequence and self.model in snapshot.shared_models and self.model not in snapshot.pipelines:
            self.request = await separated(self.request, self.principal.tenant)

    async def move_reserved(self, model: str) -> None:
        """`move_to` for a reserved request, as it was before its route changed it. The new route's limits are reserved
        in the place of the first one's. Raises `InferenceError`; the first reservation is held again then."""
        record, first, routes, request = self.record, self.reservation, self.routes, self.request
        reserved = record.allowances, self.amounts, self.cost
        self.request = self.received
        self.move_to(model)
        if routes == self.routes:
            self.request = request
            return
        await self.observe()
        await self.prepare()
        first.undo(self.now)
        try:
            await self.reserve()
        except BaseException:
            further = record.allowances
            record.allowances, self.amounts, self.cost = reserved
            with suppress(InferenceError):  # another request may have taken the place
                await self.reserve()
            record.allowances = further
            raise

    def _follow(self, decision: Decision, request: ModelRequest) -> None:
        self.decision = self.record.decision = decision
        self.arm = self.record.arm = decision.arm
        self.request = self.received = request
        self.plan = plan = self.snapshot.plan(decision)
        self.upstream, self.observers = plan.upstream, plan.observers + plan.of_clients + self.own_observers

    def decide(self) -> None:
        """A client receives the same error for a model that is unknown, not allowed, out of scope or without a matching
        route."""
        snapshot, principal, record, request = self.snapshot, self.principal, self.record, self.request
        requested, scope, allowed = request.model, principal.scope, snapshot.models_of(principal.tenant)
        model = snapshot.catalogue.find(requested)
        name = requested if model is None else model.name or requested
        if model is None or not (model.name or requested.isprintable()):  # the client chooses a family's names
            raise unknown_model(requested, "model_unknown")
        if not allowed.allows(name):
            raise unknown_model(requested, "model_not_allowed")
        if not (scope is None or scope.allows_model(name)):
            raise unknown_model(requested, "model_out_of_scope")
        self.model = record.model = model.rules.model
        if name != requested:
            request = request.codec.rename(request, name)
        self.facts = facts_of(principal, request, model, self.headers, record.request_id, self.time)
        if request.user:
            record.user = self.facts.end_user
        decision = model.rules.decide(self.facts, self.rng)
        if decision is None:
            raise unknown_model(requested, "no_route")
        if not (scope is None or scope.allows_route(decision.name)):
            raise unknown_model(requested, "route_out_of_scope")
        self.own_observers = self.observers
        self._follow(decision, request)

    async def prepare(self) -> None:
        decision, snapshot, record, services = self.decision, self.snapshot, self.record, self.services
        check_fields(self.request, decision, record)
        if decision.rewrite is not None or decision.version:
            self.request = await prepared(decision, self.request)
        if self.request.sequence and self.model not in snapshot.pipelines:  # the steps of a pipeline have the state
            if self.model in snapshot.shared_models:
                self.request = await separated(self.request, self.principal.tenant)
            home = SequenceAtHome(services.sequences, self.principal.tenant, self.model, snapshot.pools)
            self.observers += (home,)
        self.now = now = services.clock()
        if snapshot.prices:
            self.price = snapshot.price_of(self.model, self.time)
        record.allowances = services.ledger.allowances(self.facts, self.model, now)
        self.plan.estimate(self)

    async def reserve(self) -> None:
        ledger, record, now = self.services.ledger, self.record, self.now
        if record.early is not None:
            record.early.undo(now)  # nothing is awaited before the full reservation
            record.early = None
        facts, allowances = self.facts, record.allowances
        if facts.tenant in ledger.awaited:
            self.reservation = await ledger.reserve_exactly(facts, allowances, self.amounts, self.cost, now)
        else:
            self.reservation = ledger.reserve(facts, allowances, self.amounts, self.cost, now)
        record.shadowed = self.reservation.shadowed

    def open(self) -> None:
        decision, request, record, tenant = self.decision, self.request, self.record, self.principal.tenant
        standing = self.snapshot.standings[tenant]
        self.call = Call(
            deadline_of(decision.timeout, request, self.now),
            record.request_id,
            tenant,
            self.principal.key_id,
            self.headers,
            self.snapshot.salts[tenant],
            standing.share,
            priority_of(decision.priority or standing.priority, self.headers),
            trace=record.trace,
            models=self.plan.caller(self),
            repeatable=request.repeatable or decision.retry.methods == "all",
        )
        self.call.relay = record.relay

    def begun(self, answer: Answer) -> None:
        self.record.trace.first_chunk = self.services.clock()
        answer.request = self.request
        self.record.pool, self.record.endpoint = answer.pool, answer.endpoint

    def ended(self, answer: Answer, error: BaseException | None) -> None:
        """End the exchange of an answer that had begun."""
        self._settle(answer.usage, error)
        self._end(self.record, error, answer.status)

    def failed(self, error: BaseException) -> None:
        self.record.pool = _last_pool(self.record.trace) or _pool_of(error)
        self._settle(None if self.unread is None else self.unread.usage, error)

    @property
    def span(self) -> Span | None:
        log = self.record.trace.spans
        return None if log is None else log.root

    def move(self, arm: str | None) -> None:
        self.arm = self.record.arm = arm

    def sign(self, id: str) -> None:
        self.record.sign(id, self.headers)

    def _settle(self, usage: Usage | None, error: BaseException | None) -> None:
        """Charge the usage: of a broken stream its part, and nothing without an answer.

        A prompt that is rejected as too long costs the work of reading it: its estimated tokens count against the
        limits of the tenant, but have no price. So do the rows and the device time of an explanation that its server
        refuses after the model has computed for it.
        """
        record, request, price = self.record, self.request, self.price
        if usage is None and isinstance(as_inference_error(error), ClientGone) and record.trace.upstream_seconds:
            # The client left while the upstream was processing its prompt, so it pays for the prompt.
            usage = Usage(prompt_tokens=request.prompt_tokens, rows=request.row_count)
        answered = usage is not None
        if record.trace.steps:
            usage, record.cost = record.trace.spent()
        elif usage is not None and usage.device_ms:
            self.services.device_time.record(self.model, request.operation, usage.rows, usage.device_ms)
        if price is not None and record.trace.steps and not answered:
            record.cost = None  # a pipeline with a price of its own costs nothing without an answer
        elif usage is not None and price is not None:
            record.cost = charge(price, usage)
        charged = usage
        if usage is None and isinstance(error, ContextTooLong):
            charged = Usage(prompt_tokens=request.prompt_tokens)
        elif record.trace.steps:
            charged = record.trace.drawn(usage)  # an answer may have done without the step that was refused
        elif usage is None:
            charged = computed_before(request, error)
        amounts = amounts_of(request, charged)
        if record.guarding is not None:
            amounts, record.cost = with_guards(amounts, record.cost, record.guarding)
        self.reservation.settle(amounts, record.cost, self.services.clock())
        record.draws += self.reservation.draws
        record.usage = usage


class TracedRequest(Observer):
    """A request with spans: they show its decision and its fields."""

    __slots__ = ("_exchange",)

    def __init__(self, exchange: ClientExchange) -> None:
        self._exchange = exchange

    def reserved(self, exchange: Exchange) -> None:
        if (log := exchange.call.trace.spans) is not None:
            log.decided = self._exchange.now
            if exchange.request.size <= LARGE:
                log.request = exchange.request


def traced(exchange: ClientExchange) -> Observer | None:
    """The observer of a traced request; None for any other."""
    return None if exchange.record.trace.spans is None else TracedRequest(exchange)


def _pool_of(error: BaseException) -> str:
    """The pool that refused the request before an attempt; empty for any other error."""
    refusal = error.refusal if isinstance(error, InferenceError) else None
    return "" if refusal is None else str(refusal.facts.get("pool", ""))


def _last_pool(trace: CallTrace) -> str:
    """The pool of the last attempt; the id of an endpoint begins with the name of its pool."""
    return trace.attempts[-1].rpartition("/")[0] if trace.attempts else ""
