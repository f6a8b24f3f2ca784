"""One request's story, the same for every front."""

import time
from collections.abc import Callable, Mapping
from random import Random

from adapters.base import Answer, as_inference_error
from adapters.errors import BackendError, CallerError, ClientGone, NotFound
from adapters.types import Deadline, GenerateRequest, Usage
from config.money import Money
from gateway.auth.keys import Principal
from gateway.limits.ledger import Ledger, Reservation
from gateway.snapshot import Snapshot
from gateway.telemetry import Record, Telemetry
from policies.amounts import NOTHING, Amounts
from policies.decision import Decision
from policies.facts import Facts
from policies.price import Price, expected_output
from policies.rewrite import NotANumber, Rewrite
from policies.rules import Known


class Core:
    """Holds what requests share. `snapshot` is replaced by reloads; everything else lives on.

    `clock` gives monotonic seconds, `wall` Unix seconds, for what goes by the time of the day.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        ledger: Ledger,
        telemetry: Telemetry,
        rng: Random,
        clock: Callable[[], float],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.snapshot = snapshot
        self.ledger = ledger
        self.telemetry = telemetry
        self.rng = rng
        self.clock = clock
        self.wall = wall

    async def handle(
        self, principal: Principal, request: GenerateRequest, headers: Mapping[str, str], record: Record
    ) -> Answer:
        """From an authenticated request to an answer that has begun.

        Raises while nothing was answered, and the front tells of that end. An answer that has begun ends in
        `_finish`, whole, broken or abandoned. Either way what was reserved is settled, once.
        """
        snapshot = self.snapshot
        record.stream = request.stream
        request.tenant, request.key, request.headers = principal.tenant, principal.key_id, headers
        facts, decision = self._decide(snapshot, principal, request, record)
        request.priority = decision.priority
        if decision.rewrite is not None:
            _rewrite(decision.rewrite, request)
        now = self.clock()
        price = snapshot.prices.get(record.model)
        amounts, cost = self._estimate(facts, request, price, record, now)
        if facts.tenant in self.ledger.awaited:
            reservation = await self.ledger.reserve_exactly(facts, record.allowances, amounts, cost, now)
        else:
            reservation = self.ledger.reserve(facts, record.allowances, amounts, cost, now)
        record.shadowed = reservation.shadowed
        deadline = Deadline(now + decision.timeout.total, decision.timeout.first_byte, decision.timeout.idle)
        try:
            answer = await snapshot.plan(decision).call(request, deadline)
        except BaseException as error:
            record.pool = _last_pool(request)
            self._settle(reservation, price, request, record, None, error)
            raise
        finally:
            record.queue_seconds = request.queue_seconds
        record.first_chunk = self.clock()
        record.upstream_seconds = request.upstream_seconds
        record.pool, record.endpoint = answer.pool, answer.endpoint
        answer.when_ended(lambda answer, error: self._finish(reservation, price, request, record, answer, error))
        return answer

    def _estimate(
        self, facts: Facts, request: GenerateRequest, price: Price | None, record: Record, now: float
    ) -> tuple[Amounts, Money | None]:
        """The prompt, and what it may make at most as far as it says; and what the request draws on."""
        prompt, output = request.prompt_tokens, expected_output(request.max_tokens, request.n)
        record.allowances = self.ledger.allowances(facts, record.model, now)
        cost = None if price is None else price.cost(prompt, output)
        return (1, prompt + output, 0, request.size, 0), cost

    def _decide(
        self, snapshot: Snapshot, principal: Principal, request: GenerateRequest, record: Record
    ) -> tuple[Facts, Decision]:
        """A model that is unknown, not allowed, out of scope or without a matching route is all the same to the
        client."""
        asked, scope = request.model, principal.scope
        known = snapshot.catalogue.find(asked)
        name = asked if known is None else known.name or asked
        if (
            known is not None
            and snapshot.allowed[principal.tenant].allows(name)
            and (scope is None or scope.allows_model(name))
        ):
            record.model = known.rules.model
            if name != asked:
                request.codec.rename(request, name)
            facts = facts_of(principal, request, known, self.wall())
            decision = known.rules.decide(facts, self.rng)
            if decision is not None and (scope is None or scope.allows_route(decision.name)):
                record.arm = decision.arm
                return facts, decision
        raise NotFound(f"The model `{asked[:128]}` does not exist or you may not use it.", param="model")

    def _finish(
        self,
        reservation: Reservation,
        price: Price | None,
        request: GenerateRequest,
        record: Record,
        answer: Answer,
        error: BaseException | None,
    ) -> None:
        """The one end of an answer that had begun."""
        self._settle(reservation, price, request, record, answer.usage, error)
        failure = None if error is None else as_inference_error(error) or BackendError("The gateway failed.")
        self.telemetry.end(record, failure, answer.status, self.clock())

    def _settle(
        self,
        reservation: Reservation,
        price: Price | None,
        request: GenerateRequest,
        record: Record,
        usage: Usage | None,
        error: BaseException | None,
    ) -> None:
        """Charge what was used: what was streamed until a break, and nothing where nothing was answered."""
        if usage is None and isinstance(as_inference_error(error), ClientGone) and request.upstream_seconds:
            # The client left while the upstream was at work on its prompt, which is what it pays for.
            usage = Usage(prompt_tokens=request.prompt_tokens)
        if usage is not None and price is not None:
            record.cost = price.cost(usage.prompt_tokens, usage.completion_tokens)
        reservation.settle(_amounts(request, usage), record.cost, self.clock())
        record.usage = usage
        record.attempts = len(request.tried)
        record.events = request.events


def facts_of(principal: Principal, request: GenerateRequest, known: Known, now_utc: float) -> Facts:
    """What the rules may know. The request has its headers, and the model's own name."""
    return Facts(
        principal.tenant,
        principal.key_id,
        request.model,
        request.headers,
        request.stream,
        request.prompt_tokens,
        request.user,
        request.request_id,
        principal.roles,
        principal.labels,
        known.asked or request.model,
        known.version,
        request.operation,
        request.max_tokens,
        request.n,
        now_utc,
        request.asks_for,
    )


def _rewrite(rewrite: Rewrite, request: GenerateRequest) -> None:
    """Before anything is reserved, so that what is held is what may be used."""
    try:
        request.codec.rewrite(request, rewrite(request.fields))
    except NotANumber as error:
        raise CallerError(str(error), param=error.field) from None


def _last_pool(request: GenerateRequest) -> str:
    """Where it was tried last; endpoints' ids begin with their pool's name."""
    return request.tried[-1].rpartition("/")[0] if request.tried else ""


def _amounts(request: GenerateRequest, usage: Usage | None) -> Amounts:
    if usage is None:
        return NOTHING
    return (1, usage.total_tokens, usage.rows, request.size + usage.bytes, usage.device_ms)
