"""One request's story, the same for every front."""

from collections.abc import Callable, Mapping
from random import Random

from adapters.base import Answer, as_inference_error
from adapters.errors import BackendError, ClientGone, NotFound
from adapters.types import Deadline, GenerateRequest, Usage
from gateway.auth.keys import Principal
from gateway.limits.ledger import Ledger, Reservation
from gateway.snapshot import Snapshot
from gateway.telemetry import Record, Telemetry
from policies.decision import Decision
from policies.facts import Facts
from policies.price import Price

# What is reserved for an answer whose request sets no bound: the truth is settled at its end.
OUTPUT_ESTIMATE = 256


class Core:
    """Holds what requests share. `snapshot` is replaced by reloads; everything else lives on."""

    def __init__(
        self, snapshot: Snapshot, ledger: Ledger, telemetry: Telemetry, rng: Random, clock: Callable[[], float]
    ) -> None:
        self.snapshot = snapshot
        self.ledger = ledger
        self.telemetry = telemetry
        self.rng = rng
        self.clock = clock

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
        facts, decision = self._decide(snapshot, principal, request, headers, record)
        request.priority = decision.priority
        now = self.clock()
        price = snapshot.prices.get(record.model)
        reservation = self._reserve(facts, request, price, record, now)
        deadline = Deadline(now + decision.timeout.total, decision.timeout.first_byte, decision.timeout.idle)
        try:
            answer = await snapshot.plan(decision).call(request, deadline)
        except BaseException as error:
            self._settle(reservation, price, request, record, None, error)
            raise
        finally:
            record.queue_seconds = request.queue_seconds
        record.first_chunk = self.clock()
        record.upstream_seconds = request.upstream_seconds
        record.pool, record.endpoint = answer.pool, answer.endpoint
        answer.when_ended(lambda answer, error: self._finish(reservation, price, request, record, answer, error))
        return answer

    def _reserve(
        self, facts: Facts, request: GenerateRequest, price: Price | None, record: Record, now: float
    ) -> Reservation:
        """The prompt, and what it may make at most as far as it says. Raises `LimitExceeded`."""
        prompt, output = request.prompt_tokens, OUTPUT_ESTIMATE if request.max_tokens is None else request.max_tokens
        output *= request.n
        cost = None if price is None else price.cost(prompt, output)
        record.allowances = self.ledger.allowances(facts, record.model, now)
        reservation = self.ledger.reserve(facts, record.allowances, prompt + output, cost, now)
        record.shadowed = reservation.shadowed
        return reservation

    def _decide(
        self,
        snapshot: Snapshot,
        principal: Principal,
        request: GenerateRequest,
        headers: Mapping[str, str],
        record: Record,
    ) -> tuple[Facts, Decision]:
        """A model that is unknown, not allowed, out of scope or without a matching route is all the same to the
        client."""
        rules, scope = snapshot.catalogue.find(request.model), principal.scope
        if (
            rules is not None
            and snapshot.allowed[principal.tenant].allows(request.model)
            and (scope is None or scope.allows_model(request.model))
        ):
            record.model = rules.model
            facts = Facts(
                tenant=principal.tenant,
                key=principal.key_id,
                model=request.model,
                headers=headers,
                stream=request.stream,
                prompt_tokens=request.prompt_tokens,
                user=request.user,
                request_id=request.request_id,
            )
            decision = rules.decide(facts, self.rng)
            if decision is not None and (scope is None or scope.allows_route(decision.name)):
                record.arm = decision.arm
                return facts, decision
        raise NotFound(f"The model `{request.model[:128]}` does not exist or you may not use it.", param="model")

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
        reservation.settle(usage.total_tokens if usage else 0, record.cost, self.clock())
        record.usage = usage
        record.attempts = len(request.tried)
        record.events = request.events
