"""Calls the models of a pipeline's steps as the pipeline's client, and charges them."""

import asyncio

from adapters.base import Answer
from adapters.call import Call, total
from adapters.errors import BudgetExceeded, NotFound
from adapters.requests import ModelQuery, ModelRequest
from adapters.spans import Span
from adapters.types import Deadline, Usage
from config.schema.money import Money
from config.schema.pipelines.pipeline import BudgetConfig
from gateway.auth.keys import Principal
from gateway.features.pipelines.executor import Pipeline
from gateway.features.pipelines.scope import Bound, Estimate
from gateway.limits.allowance import Allowance
from gateway.limits.ledger import Reservation
from gateway.request.observers import SequenceAtHome
from gateway.request.path_parts import (
    amounts_of,
    charge,
    computed_before,
    deadline_of,
    facts_of,
    prepared,
    separated,
)
from gateway.request.route_plan import RoutePlan
from gateway.request.services import Services
from gateway.request.snapshot import Snapshot
from gateway.request.spine import Exchange
from gateway.telemetry import Record
from policies.facts import Facts
from policies.limits.limits import Amounts
from policies.limits.price import PriceRow, expected_output
from policies.pipelines.request_budget import RequestBudget, Use
from policies.routing.rules import ResolvedModel


class Budgets:
    """The budgets of a request to a pipeline and of the pipelines around it. Each call counts against all of them."""

    __slots__ = ("_all", "_currency")

    def __init__(self, all_: tuple[RequestBudget, ...] = (), currency: str = "") -> None:
        self._all = all_
        self._currency = currency

    def within(self, pipeline: str, config: BudgetConfig | None) -> "Budgets":
        """These budgets and that of a pipeline inside, for one request."""
        if config is None:
            return self
        spend = config.spend
        own = RequestBudget(pipeline, config.tokens, None if spend is None else spend.picos)
        return Budgets((*self._all, own), self._currency if spend is None else spend.currency)

    def reserve(self, model: str, estimate: Use) -> None:
        """Count a call that starts. Raises `BudgetExceeded`, and counts nothing then."""
        for budget in self._all:
            if budget.exceeded(estimate):
                reason = f"A call of `{model}` would exceed the budget of `{budget.pipeline}`"
                remedy = "Send a shorter prompt, or fewer `max_tokens`."
                raise BudgetExceeded(f"{reason}: {self._shown(budget, estimate)}. {remedy}")
        for budget in self._all:
            budget.reserve(estimate)

    def settle(self, estimate: Use, truth: Use) -> None:
        """Count a call that has ended."""
        for budget in self._all:
            budget.settle(estimate, truth)

    def _shown(self, budget: RequestBudget, estimate: Use) -> str:
        used = budget.used + budget.reserved
        parts = []
        if budget.tokens is not None:
            parts.append(f"{used.tokens:g} of {budget.tokens:g} tokens are used, and it may use {estimate.tokens:g}")
        if budget.picos is not None:
            spent, most, more = (Money(each, self._currency) for each in (used.picos, budget.picos, estimate.picos))
            parts.append(f"{spent} of {most} are spent, and it may cost {more}")
        return "; ".join(parts)


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
        record: Record,
        *,
        priced: bool,
    ) -> None:
        """`record` is that of the client's request, which has the draws of its calls."""
        self.record = record
        self.services = services
        self.snapshot = snapshot
        self.principal = principal
        self._covered = allowances
        self.budgets = budgets
        self.priced = priced
        """Whether the pipeline has its own price, so that the prices of its models do not count."""

    async def call(self, model: str, request: ModelRequest, call: Call) -> Answer:
        """See `adapters.call.ModelCaller`. The request has the model's own name."""
        resolved = self.snapshot.called(model)
        assert resolved is not None  # the checks of the file found it
        exchange = StepExchange(self, resolved, request, call)
        if not isinstance(request, ModelQuery):
            return await exchange.answer()
        exchange.decide()
        exchange.open()
        return await exchange.upstream.call(request, exchange.call)

    def further(self, facts: Facts, model: str, now: float) -> tuple[Allowance, ...]:
        """The limits of a call that no reservation around it covers."""
        ledger = self.services.ledger
        if self._covered and ledger.is_for_each_request(facts, model):
            return ()
        allowances = ledger.allowances(facts, model, now)
        covered = {id(allowance) for allowance in self._covered}
        return tuple(allowance for allowance in allowances if id(allowance) not in covered)

    def within(self, inner: Pipeline, allowances: tuple[Allowance, ...], *, priced: bool) -> "ClientModelCalls":
        """Calls the models of a pipeline that a step of this one calls."""
        covered, budgets = (*self._covered, *allowances), self.budgets.within(inner.name, inner.budget)
        priced = self.priced or priced
        services, snapshot, record = self.services, self.snapshot, self.record
        return ClientModelCalls(services, snapshot, self.principal, covered, budgets, record, priced=priced)


class StepExchange(Exchange):
    """A call of a model by a step. Its usage is charged to the step and to the limits of the model."""

    __slots__ = ("_allowances", "_around", "_caller", "_inner", "_now", "_reservation", "_resolved", "_use")

    def __init__(self, caller: ClientModelCalls, resolved: ResolvedModel, request: ModelRequest, around: Call) -> None:
        super().__init__(caller.services, request)
        self.model = resolved.rules.model
        self._caller = caller
        self._resolved = resolved
        self._around = around
        self._inner = pipeline_of(caller.snapshot, self.model)
        """The pipeline that answers, whose own steps record its usage; None for any other model."""
        self._now = caller.services.clock()
        self._allowances: tuple[Allowance, ...] = ()
        self._use = Use()
        self._reservation: Reservation | None = None

    def decide(self) -> None:
        caller, services, around = self._caller, self.services, self._around
        self.facts = facts_of(
            caller.principal, self.request, self._resolved, around.headers, around.id, services.wall()
        )
        decision = self._resolved.rules.decide(self.facts, services.rng)
        if decision is None:
            raise NotFound(f"No route of the model `{self.model}` matches the request of this step.").because(
                "no_route", model=self.model
            )
        plan = caller.snapshot.plan(decision)
        self.decision, self.arm, self.upstream, self.observers = decision, decision.arm, plan.upstream, plan.observers

    async def prepare(self) -> None:
        caller, snapshot, request = self._caller, self._caller.snapshot, await prepared(self.decision, self.request)
        if request.sequence and self._inner is None:
            if len(snapshot.allowed) > 1:  # any tenant's pipeline may contain the model
                request = await separated(request, caller.principal.tenant)
            home = SequenceAtHome(self.services.sequences, caller.principal.tenant, self.model, snapshot.pools)
            self.observers += (home,)
        self.request = request
        self.price = None if caller.priced else snapshot.price_of(self.model, self.facts.time)
        self._allowances = caller.further(self.facts, self.model, self._now)
        if self._inner is None:
            RoutePlan.estimate(snapshot.plan(self.decision), self)
            self._use = Use(self.amounts[1], 0 if self.cost is None else self.cost.picos)
        else:
            amounts, _ = worst_path(self._inner, snapshot, request, self.price, self.facts.time)
            price = self.price
            cost = None if price is None else price.estimate(request.prompt_tokens, request.max_tokens, request.n)
            self.amounts, self.cost = amounts, cost
            self._use = Use(0, 0 if cost is None else cost.picos)

    async def reserve(self) -> None:
        budgets, ledger = self._caller.budgets, self.services.ledger
        budgets.reserve(self.model, self._use)
        if not self._allowances:
            return
        try:
            self._reservation = await ledger.reserve_part(
                self.facts, self._allowances, self.amounts, self.cost, self._now
            )
        except BaseException:
            budgets.settle(self._use, Use())
            raise

    def open(self) -> None:
        around, decision = self._around, self.decision
        self.call = call = around.part()
        call.assignment = None
        call.repeatable = around.repeatable and (self.request.repeatable or decision.retry.methods == "all")
        call.deadline = _earlier(around.deadline, deadline_of(decision.timeout, self.request, self._now))
        if self._inner is not None:
            priced = self._resolved.rules.price is not None
            call.models = self._caller.within(self._inner, self._allowances, priced=priced)

    @property
    def span(self) -> Span | None:
        return self._around.around

    def begun(self, answer: Answer) -> None:
        pass

    def ended(self, answer: Answer, error: BaseException | None) -> None:
        self._settle(answer.usage)

    def failed(self, error: BaseException) -> None:
        """Charge a call that never answered: its prompt, if it was cancelled while an upstream processed it."""
        sent = isinstance(error, asyncio.CancelledError) and bool(self.call.tried)
        usage = Usage(prompt_tokens=self.request.prompt_tokens, rows=self.request.row_count) if sent else None
        self._settle(usage, computed_before(self.request, error))

    def _settle(self, usage: Usage | None, charged: Usage | None = None) -> None:
        """Charge a usage, or what an error `charged` against the limits only."""
        cost, call, contains_steps = None, self.call, self._inner is not None
        if usage is not None:
            if usage.device_ms:
                self.services.device_time.record(self.model, self.request.operation, usage.rows, usage.device_ms)
            if self.price is not None:
                cost = charge(self.price, usage)
            if call.step is not None:
                call.step.spend(Usage(exact=usage.exact) if contains_steps else usage, cost)
        elif charged is not None and call.step is not None and not contains_steps:  # its own steps record theirs
            call.step.refused = total(call.step.refused, charged)
        tokens = 0 if usage is None or contains_steps else usage.total_tokens
        self._caller.budgets.settle(self._use, Use(tokens, 0 if cost is None else cost.picos))
        if self._reservation is not None:
            self._reservation.settle(amounts_of(self.request, usage or charged), cost, self.services.clock())
            self._caller.record.draws += self._reservation.draws


def _earlier(first: Deadline, second: Deadline) -> Deadline:
    """The limits of a route, ended by the earlier of two deadlines."""
    return Deadline(min(first.at, second.at), second.first_byte, second.idle)


def pipeline_of(snapshot: Snapshot, model: str) -> Pipeline | None:
    """The pipeline of a model; None for any other model."""
    pipeline = snapshot.pipelines.get(model)
    assert pipeline is None or isinstance(pipeline, Pipeline)
    return pipeline


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
        if (inner := pipeline_of(snapshot, model)) is None:
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
