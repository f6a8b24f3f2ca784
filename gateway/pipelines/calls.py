"""Calls the models of a pipeline's steps as the pipeline's client, and charges them."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from adapters.base import Answer, Upstream
from adapters.call import Call
from adapters.errors import NotFound
from adapters.requests import ModelQuery, ModelRequest
from adapters.types import Deadline, Usage
from config.schema.money import Money
from gateway.auth.keys import Principal
from gateway.exchange import amounts_of, charge, deadline_of, facts_of, hide_model_error, prepared, separated
from gateway.limits.allowance import Allowance
from gateway.limits.ledger import Ledger, Reservation
from gateway.pipelines.budgets import Budgets
from gateway.pipelines.executor import Pipeline
from gateway.pipelines.scope import Bound, Estimate
from gateway.snapshot import Snapshot
from gateway.telemetry.traces.content import TraceContent, traced_content
from gateway.traffic.sequences import Sequences
from policies.limits.amounts import Amounts
from policies.limits.expected import DeviceTime
from policies.limits.price import PriceRow, expected_output
from policies.pipelines.request_budget import Use
from policies.routing.decision import Decision
from policies.routing.facts import Facts
from policies.routing.rules import ResolvedModel


class Services:
    """The objects that the calls of all pipelines share."""

    def __init__(
        self,
        ledger: Ledger,
        device_time: DeviceTime,
        rng: Random,
        clock: Callable[[], float],
        wall: Callable[[], float],
        sequences: Sequences,
    ) -> None:
        self.ledger = ledger
        self.device_time = device_time
        self.rng = rng
        self.clock = clock
        self.wall = wall
        self.sequences = sequences


class ClientModelCalls:
    """The model calls of one client's request to a pipeline.

    Each call is routed by the rules of its model. The request of the client is reserved and counted once, for the whole
    pipeline: a call draws only on those limits of its model that the reservation of the pipeline does not cover. The
    client needs no right to use the models: a pipeline, like a route, is the operator's choice.
    """

    def __init__(
        self,
        services: Services,
        snapshot: Snapshot,
        principal: Principal,
        allowances: tuple[Allowance, ...],
        budgets: Budgets,
        *,
        priced: bool,
    ) -> None:
        self._services = services
        self._snapshot = snapshot
        self._principal = principal
        self._covered = allowances
        self._budgets = budgets
        self._priced = priced
        """Whether the pipeline has its own price, so that the prices of its models do not count."""

    async def call(self, model: str, request: ModelRequest, call: Call) -> Answer:
        """See `adapters.call.ModelCaller`. The request has the model's own name."""
        services, snapshot = self._services, self._snapshot
        resolved = snapshot.called(model)
        assert resolved is not None  # the checks of the file found it
        now = services.clock()
        facts, decision = self._decide(resolved, request, call)
        if isinstance(request, ModelQuery):
            part = call.part()
            part.assignment = None
            return await snapshot.plan(decision).call(request, part)
        request = await prepared(decision, request)
        inner = snapshot.pipelines.get(resolved.rules.model)
        is_sequence = bool(request.sequence) and inner is None
        if is_sequence and len(snapshot.allowed) > 1:  # any tenant's pipeline may contain the model
            request = await separated(request, self._principal.tenant)
        price = None if self._priced else snapshot.price_of(resolved.rules.model, facts.time)
        allowances = self._further(facts, resolved.rules.model, now)
        amounts, cost = self._estimate(resolved, request, price, facts.time)
        reservation = None
        use = Use(0 if inner is not None else amounts[1], 0 if cost is None else cost.picos)
        self._budgets.reserve(resolved.rules.model, use)
        try:
            if allowances:
                reservation = await services.ledger.reserve_part(facts, allowances, amounts, cost, now)
        except BaseException:
            self._budgets.settle(use, Use())
            raise
        part = call.part()
        comparison = decision.comparison
        part.assignment = None if comparison is None else comparison.assign(decision.side, facts)
        part.repeatable = call.repeatable and (request.repeatable or decision.retry.methods == "all")
        part.deadline = _earlier(call.deadline, deadline_of(decision.timeout, request, now))
        if inner is not None:
            part.models = ClientModelCalls(
                services,
                snapshot,
                self._principal,
                (*self._covered, *allowances),
                self._budgets.within(inner.name, inner.budget),
                priced=self._priced or resolved.rules.price is not None,
            )
        held = Held(reservation, self._budgets, use)
        settle = _Settlement(services, resolved, request, part, price, held, contains_steps=inner is not None)
        try:
            plan = snapshot.plan(decision)
            if is_sequence:
                plan = self._at_home(resolved.rules.model, request, part, plan)
            content = _content_of(decision, request, part)
            answer = await plan.call(request, part)
            if content is not None:
                answer = content.tap(answer)
        except BaseException as error:
            settle.failed(error)
            if decision.hide_model_errors:
                hide_model_error(error)
            raise
        if is_sequence:
            services.sequences.answered(self._principal.tenant, resolved.rules.model, request, answer, decision.arm)
        if decision.hide_model_errors:
            answer.when_ended(lambda _, error: hide_model_error(error))
        answer.when_ended(lambda answer, _: settle(answer.usage))
        return answer

    def _at_home(self, model: str, request: ModelRequest, call: Call, plan: Upstream) -> Upstream:
        """The upstream for a request of a sequence. Sets the endpoint of the call."""
        place = self._services.sequences.place(self._principal.tenant, model, request, self._snapshot.pools)
        if place is None:
            return plan
        call.home = place.endpoint
        return self._snapshot.pools[place.pool]

    def _decide(self, resolved: ResolvedModel, request: ModelRequest, call: Call) -> tuple[Facts, Decision]:
        services = self._services
        facts = facts_of(self._principal, request, resolved, call.headers, call.id, services.wall())
        decision = resolved.rules.decide(facts, services.rng)
        if decision is None:
            raise NotFound(f"No route of the model `{resolved.rules.model}` matches the request of this step.")
        return facts, decision

    def _further(self, facts: Facts, model: str, now: float) -> tuple[Allowance, ...]:
        """The limits of the call that no reservation around it covers."""
        ledger = self._services.ledger
        if self._covered and ledger.is_for_each_request(facts, model):
            return ()
        allowances = ledger.allowances(facts, model, now)
        covered = {id(allowance) for allowance in self._covered}
        return tuple(allowance for allowance in allowances if id(allowance) not in covered)

    def _estimate(
        self, resolved: ResolvedModel, request: ModelRequest, price: PriceRow | None, utc: float
    ) -> tuple[Amounts, Money | None]:
        """The amounts and the cost to reserve for a call: of a pipeline those of its most expensive path."""
        model, cost = resolved.rules.model, None
        if price is not None:
            cost = price.estimate(request.prompt_tokens, request.max_tokens, request.n)
        if (inner := self._snapshot.pipelines.get(model)) is not None:
            return worst_path(inner, self._snapshot, request, price, utc)[0], cost
        tokens = request.prompt_tokens + expected_output(request.max_tokens, request.n)
        device_ms = self._services.device_time.expected(model, request.rows)
        return (1, tokens, request.rows, request.size, device_ms), cost


def _content_of(decision: Decision, request: ModelRequest, call: Call) -> TraceContent | None:
    """The content of a call for the span of its step, on a route whose traces have texts."""
    spans, around = call.trace.spans, call.around
    if decision.trace_content is None or spans is None or around is None:
        return None
    return traced_content(decision.trace_content, request, spans, around)


class Held(NamedTuple):
    """The reservations of a call: in the limits of its model, and in the budgets around it."""

    reservation: Reservation | None
    budgets: Budgets
    use: Use


class _Settlement:
    """The end of one call of a model: charges its usage to its step and to the limits of the model, once."""

    def __init__(
        self,
        services: Services,
        resolved: ResolvedModel,
        request: ModelRequest,
        call: Call,
        price: PriceRow | None,
        held: Held,
        *,
        contains_steps: bool,
    ) -> None:
        self._contains_steps = contains_steps
        """Whether the model is a pipeline, whose own steps record its usage."""
        self._services = services
        self._model = resolved.rules.model
        self._request = request
        self._call = call
        self._price = price
        self._held = held

    def __call__(self, usage: Usage | None) -> None:
        cost, call = None, self._call
        if usage is not None:
            if usage.device_ms:
                self._services.device_time.record(self._model, usage.rows, usage.device_ms)
            if self._price is not None:
                cost = charge(self._price, usage)
            if call.step is not None:
                call.step.spend(Usage(exact=usage.exact) if self._contains_steps else usage, cost)
        held, tokens = self._held, 0 if usage is None or self._contains_steps else usage.total_tokens
        held.budgets.settle(held.use, Use(tokens, 0 if cost is None else cost.picos))
        if held.reservation is not None:
            held.reservation.settle(amounts_of(self._request, usage), cost, self._services.clock())

    def failed(self, error: BaseException) -> None:
        """Charge a call that never answered: its prompt, if it was cancelled while an upstream processed it."""
        sent = isinstance(error, asyncio.CancelledError) and bool(self._call.tried)
        self(Usage(prompt_tokens=self._request.prompt_tokens, rows=self._request.row_count) if sent else None)


def _earlier(first: Deadline, second: Deadline) -> Deadline:
    """The limits of a route, ended by the earlier of two deadlines."""
    return Deadline(min(first.at, second.at), second.first_byte, second.idle)


def worst_path(
    pipeline: Pipeline, snapshot: Snapshot, request: ModelRequest, price: PriceRow | None, utc: float
) -> tuple[Amounts, Money | None]:
    """The amounts and the cost to reserve for a request to a pipeline: those of its most expensive path."""
    currency = next((each.currency for each in snapshot.prices.values()), "")

    def of_model(written: str, estimate: Estimate) -> Bound:
        resolved = snapshot.called(written)
        assert resolved is not None  # the checks of the file resolved it
        model = resolved.rules.model
        own = snapshot.price_of(model, utc)
        picos = 0 if own is None else own.cost(estimate.prompt, estimate.output).picos
        if (inner := snapshot.pipelines.get(model)) is None:
            return Bound(estimate.prompt + estimate.output, estimate.rows, picos)
        bound = inner.bound(estimate)
        return bound if own is None else Bound(bound.tokens, bound.rows, picos)

    output = expected_output(request.max_tokens, request.n)
    bound = pipeline.bound(Estimate(of_model, request.rows, request.prompt_tokens, output, request.n))
    if price is not None:
        cost: Money | None = price.estimate(request.prompt_tokens, request.max_tokens, request.n)
    else:
        cost = Money(bound.picos, currency) if currency else None
    return (1, bound.tokens, bound.rows, request.size, 0), cost
