"""The path of one request behind every front: decide, reserve, call, settle, end."""

import asyncio
import time
from collections.abc import Callable, Mapping
from random import Random

from msgspec.structs import replace

from adapters import statuses
from adapters.base import Answer, as_inference_error
from adapters.call import Call, CallTrace
from adapters.errors import (
    ClientGone,
    ContextTooLong,
    InferenceError,
    NotFound,
    Unsupported,
)
from adapters.requests import ModelOrder, ModelQuery, ModelRequest, R
from adapters.types import Deadline, Usage
from config.schema.money import Money
from gateway.auth.keys import Principal
from gateway.exchange import (
    amounts_of,
    charge,
    check_fields,
    deadline_of,
    facts_of,
    hide_model_error,
    prepared,
    separated,
)
from gateway.limits.allowance import Allowance
from gateway.limits.ledger import Ledger, Reservation
from gateway.limits.memory import Memory
from gateway.pipelines.budgets import Budgets
from gateway.pipelines.calls import ClientModelCalls, Services, worst_path
from gateway.recording.sample import Sample
from gateway.shadow.copied import CopiedRequest
from gateway.shadow.copies import ShadowCopies
from gateway.snapshot import Snapshot
from gateway.telemetry import Record, Telemetry
from gateway.telemetry.traces.content import TraceContent, traced_content
from gateway.traffic.queue import priority_of
from gateway.traffic.sequences import Sequences
from gateway.traffic.spans import LARGE
from policies.limits.amounts import Amounts
from policies.limits.expected import DeviceTime
from policies.limits.price import PriceRow, expected_output
from policies.routing.decision import Decision
from policies.routing.facts import Facts

ORDER_SECONDS = 600.0
"""The time in which a server must load a model."""


class Core:
    """The shared state of all requests, and their path. Reloads replace `snapshot` and preserve the rest.

    `clock` returns monotonic seconds; `wall` returns Unix seconds, for rules by time of day.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        ledger: Ledger,
        telemetry: Telemetry,
        rng: Random,
        clock: Callable[[], float],
        wall: Callable[[], float] = time.time,
        memory: Memory | None = None,
    ) -> None:
        self.snapshot = snapshot
        self.ledger = ledger
        self.telemetry = telemetry
        self.rng = rng
        self.clock = clock
        self.wall = wall
        self.memory = memory or Memory(snapshot.config.http)
        self.sample: Sample | None = None
        """The sample of recorded traffic; None if nothing is recorded."""
        self.copies: ShadowCopies | None = None
        """Sends the copies of requests; None if no route has a shadow."""
        self._sequences = Sequences(clock)
        self._device_time = DeviceTime()
        self._services = Services(ledger, self._device_time, rng, clock, lambda: self.wall(), self._sequences)

    async def handle(
        self, principal: Principal, request: ModelRequest, headers: Mapping[str, str], record: Record
    ) -> Answer:
        """Return the answer to an authenticated request when it begins.

        A failure before that is raised, and the front ends the exchange. An answer that has begun ends in `_finish`:
        whole, broken or cancelled. In both cases the reservation is settled exactly once.
        """
        snapshot = self.snapshot.of_batches() if record.of_batch else self.snapshot
        record.stream = request.stream
        if (sample := self.sample) is not None and sample.has(record.request_id):
            record.draft = sample.draft(principal, request, headers)
        request, facts, decision = self._decide(snapshot, principal, request, headers, record)
        check_fields(request, decision, record)
        received = request
        if decision.rewrite is not None or decision.version:
            request = await prepared(decision, request)
        is_sequence = bool(request.sequence) and record.model not in snapshot.pipelines  # its steps have the state
        if is_sequence and record.model in snapshot.shared_models:
            request = await separated(request, principal.tenant)
        now = self.clock()
        price = snapshot.price_of(record.model, facts.time)
        amounts, cost = self._estimate(snapshot, facts, request, price, record, decision, now)
        if record.draft is not None:
            record.draft.reserve(amounts, cost)
        if record.early is not None:
            record.early.undo(now)  # nothing is awaited before the full reservation
            record.early = None
        if facts.tenant in self.ledger.awaited:
            reservation = await self.ledger.reserve_exactly(facts, record.allowances, amounts, cost, now)
        else:
            reservation = self.ledger.reserve(facts, record.allowances, amounts, cost, now)
        record.shadowed = reservation.shadowed
        plan, home = snapshot.plan(decision), ""
        if is_sequence:
            place = self._sequences.place(principal.tenant, record.model, request, snapshot.pools)
            if place is not None:
                plan, record.arm, home = snapshot.pools[place.pool], place.arm, place.endpoint
        assignment = None
        if (comparison := decision.comparison) is not None:
            assignment = comparison.assign(decision.side, facts)
            if assignment is not None and comparison.signs:
                record.sign(comparison.sign(assignment, facts), headers)
        standing, trace = snapshot.standings[principal.tenant], record.trace
        call = Call(
            deadline_of(decision.timeout, request, now),
            record.request_id,
            principal.tenant,
            principal.key_id,
            headers,
            snapshot.salts[principal.tenant],
            standing.share,
            priority_of(decision.priority or standing.priority, headers),
            home,
            trace,
            self._models_of(snapshot, principal, decision, record.allowances) if decision.calls_models else None,
            repeatable=request.repeatable or decision.retry.methods == "all",
        )
        call.assignment, call.relay = assignment, record.relay
        content: TraceContent | None = None
        if (log := trace.spans) is not None:
            log.decided = now
            if request.size <= LARGE:
                log.request = request
            if decision.trace_content is not None:
                content = traced_content(decision.trace_content, request, log, log.root)
        try:
            answer = await plan.call(request, call)
        except BaseException as error:
            record.pool = _last_pool(trace)
            self._settle(reservation, price, request, record, None, error)
            if decision.hide_model_errors:
                hide_model_error(error)
            raise
        if record.draft is not None:
            answer = record.draft.tap(answer)
        if content is not None:
            answer = content.tap(answer)
        shadow = decision.shadow
        if shadow is not None and self.copies is not None and shadow.draws(self.rng, decision.comparison):
            copied = CopiedRequest(principal, received, request, call, decision.timeout, now)
            answer = self.copies.observe(shadow, copied, answer, stored=record.stored)
        trace.first_chunk = self.clock()
        answer.request = request
        record.pool, record.endpoint = answer.pool, answer.endpoint
        if is_sequence:
            self._sequences.answered(principal.tenant, record.model, request, answer, record.arm)
        if decision.hide_model_errors:
            answer.when_ended(lambda _, error: hide_model_error(error))
        answer.when_ended(lambda answer, error: self._finish(reservation, price, request, record, answer, error))
        return answer

    async def look_up(self, principal: Principal, query: ModelQuery, headers: Mapping[str, str]) -> Answer:
        """A query of the gateway's own to the server of a model. It is neither charged nor logged."""
        snapshot, now = self.snapshot, self.clock()
        query, _, decision = self._decide(snapshot, principal, query, headers, Record("", "models", "", now))
        deadline = deadline_of(decision.timeout, query, now)
        models = self._models_of(snapshot, principal, decision, ()) if decision.calls_models else None
        call = Call(deadline, "", principal.tenant, principal.key_id, headers, models=models)
        return await snapshot.plan(decision).call(query, call)

    def _models_of(
        self, snapshot: Snapshot, principal: Principal, decision: Decision, allowances: tuple[Allowance, ...]
    ) -> ClientModelCalls:
        """The caller of the models of a pipeline, or of an arm that is a model."""
        model = decision.model
        pipeline = snapshot.pipelines.get(model)
        budgets = Budgets() if pipeline is None else Budgets().within(pipeline.name, pipeline.budget)
        priced = model in snapshot.prices
        return ClientModelCalls(self._services, snapshot, principal, allowances, budgets, priced=priced)

    async def order(self, order: ModelOrder) -> None:
        """Forward an order to every endpoint of every pool that a route of its model leads to, all at once.

        Only the admin listener gives orders: there is no tenant. Raises the first failure when all calls have ended.
        """
        snapshot, now = self.snapshot, self.clock()
        model = snapshot.catalogue.find(order.model)
        if model is None:
            raise NotFound(f"The model `{order.model[:128]}` does not exist.", param="model")
        order = replace(order, model=model.name or order.model)
        if model.rules.model in snapshot.pipelines:
            raise Unsupported("A pipeline has no servers of its own: order the models of its steps.", param="model")
        routes = next(m.routes for m in snapshot.config.models if m.name == model.rules.model)
        pools = dict.fromkeys(pool for route in routes for pool in route.pools())
        deadline = Deadline(now + ORDER_SECONDS, ORDER_SECONDS, ORDER_SECONDS)
        endpoints = [endpoint for pool in pools for endpoint in snapshot.pools[pool].endpoints]
        calls = [endpoint.adapter.call(order, Call(deadline)) for endpoint in endpoints]
        ends = await asyncio.gather(*calls, return_exceptions=True)
        for endpoint, end in zip(endpoints, ends, strict=True):
            if isinstance(end, BaseException):
                raise endpoint.scrubber.error(end)

    def storage_quota(self, tenant: str) -> int:
        """The most bytes that a tenant stores. One that has left the file stores nothing more."""
        standing = self.snapshot.standings.get(tenant)
        return 0 if standing is None else standing.storage_quota

    def end(self, record: Record, error: BaseException | None = None, status: int | None = None) -> None:
        """End an exchange: the one place for responses, failures, cancellations and streams of every front.

        `status` is the status that the client received, if that is not the status of the error. Only the first call
        counts.
        """
        now = self.clock()
        if record.early is not None:
            record.early.undo(now)
            record.early = None
        failure = None if error is None else as_inference_error(error) or internal_error()
        if status is None:
            status = 200 if failure is None else statuses.http_status(failure)
        self.telemetry.end(record, failure, status, now)

    def _estimate(
        self,
        snapshot: Snapshot,
        facts: Facts,
        request: ModelRequest,
        price: PriceRow | None,
        record: Record,
        decision: Decision,
        now: float,
    ) -> tuple[Amounts, Money | None]:
        """Amounts to reserve: the prompt, the longest output, and their cost. Fills in the allowances of the record."""
        model = record.model
        prompt, output = request.prompt_tokens, expected_output(request.max_tokens, request.n)
        record.allowances = self.ledger.allowances(facts, model, now)
        if decision.calls_models:
            if (arm := decision.target.model) is not None and (resolved := snapshot.catalogue.find(arm)) is not None:
                model = resolved.rules.model
            if (pipeline := snapshot.pipelines.get(model)) is not None:
                return worst_path(pipeline, snapshot, request, price, facts.time)
        cost = None if price is None else price.cost(prompt, output)
        device_ms = self._device_time.expected(model, request.rows)
        return (1, prompt + output, request.rows, request.size, device_ms), cost

    def _decide(
        self,
        snapshot: Snapshot,
        principal: Principal,
        request: R,
        headers: Mapping[str, str],
        record: Record,
    ) -> tuple[R, Facts, Decision]:
        """Route the request. A client receives the same error for a model that is unknown, not allowed, out of scope or
        without a matching route."""
        requested, scope, allowed = request.model, principal.scope, snapshot.models_of(principal.tenant)
        model = snapshot.catalogue.find(requested)
        name = requested if model is None else model.name or requested
        if (
            model is not None
            and (model.name or requested.isprintable())  # the client chooses a family's names
            and allowed.allows(name)
            and (scope is None or scope.allows_model(name))
        ):
            record.model = model.rules.model
            if name != requested:
                request = request.codec.rename(request, name)
            facts = facts_of(principal, request, model, headers, record.request_id, self.wall())
            draft, rng = record.draft, record.rng or self.rng
            decision = model.rules.decide(facts, rng if draft is None else draft.drawing(rng))
            if decision is not None and not (scope is None or scope.allows_route(decision.name)):
                decision = None
            if draft is not None:
                draft.decide(decision, facts.time)
            if decision is not None:
                record.arm, record.decision = decision.arm, decision
                return request, facts, decision
        raise NotFound(f"The model `{requested[:128]}` does not exist or you may not use it.", param="model")

    def _finish(
        self,
        reservation: Reservation,
        price: PriceRow | None,
        request: ModelRequest,
        record: Record,
        answer: Answer,
        error: BaseException | None,
    ) -> None:
        """End an exchange whose answer had begun."""
        self._settle(reservation, price, request, record, answer.usage, error)
        self.end(record, error, answer.status)

    def _settle(
        self,
        reservation: Reservation,
        price: PriceRow | None,
        request: ModelRequest,
        record: Record,
        usage: Usage | None,
        error: BaseException | None,
    ) -> None:
        """Charge the usage: of a broken stream its part, and nothing without an answer.

        A prompt that is rejected as too long costs the work of reading it: its estimated tokens count against the
        limits of the tenant, but have no price.
        """
        if usage is None and isinstance(as_inference_error(error), ClientGone) and record.trace.upstream_seconds:
            # The client left while the upstream was processing its prompt, so it pays for the prompt.
            usage = Usage(prompt_tokens=request.prompt_tokens, rows=request.row_count)
        answered = usage is not None
        if record.trace.steps:
            usage, record.cost = record.trace.spent()
        elif usage is not None and usage.device_ms:
            self._device_time.record(record.model, usage.rows, usage.device_ms)
        if price is not None and record.trace.steps and not answered:
            record.cost = None  # a pipeline with a price of its own costs nothing without an answer
        elif usage is not None and price is not None:
            record.cost = charge(price, usage)
        charged = usage
        if usage is None and isinstance(error, ContextTooLong):
            charged = Usage(prompt_tokens=request.prompt_tokens)
        reservation.settle(amounts_of(request, charged), record.cost, self.clock())
        record.usage = usage


def internal_error() -> InferenceError:
    """The error that a client receives for a defect of the gateway."""
    return InferenceError("The gateway failed on this request.")


def _last_pool(trace: CallTrace) -> str:
    """The pool of the last attempt; the id of an endpoint begins with the name of its pool."""
    return trace.attempts[-1].rpartition("/")[0] if trace.attempts else ""
