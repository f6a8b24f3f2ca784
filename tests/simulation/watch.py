"""Real parts under observation: each behaves as before, and leaves a trace for the judge."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import CapacityError, LimitExceeded, Resting, Unavailable
from adapters.requests import GenerateRequest, ModelRequest
from config.schema.config import TenantConfig
from config.schema.money import Money
from gateway.limits.allowance import Allowance
from gateway.limits.drawn import Draw
from gateway.limits.ledger import Ledger, Reservation
from gateway.traffic.endpoint import RefusalKey, subject_of
from gateway.traffic.pool import Pool
from policies.breaker import LONGEST_REST
from policies.facts import Facts
from policies.limits.limits import TOKENS, Amounts
from policies.refusals import WITNESS
from tests.simulation.oracle import Admission, LimitsOracle


class WatchedReservation:
    """A reservation that the oracle follows."""

    def __init__(self, real: Reservation, ledger: "WatchedLedger", admission: Admission) -> None:
        self._real = real
        self._ledger = ledger
        self._admission = admission
        self.shadowed = real.shadowed

    @property
    def draws(self) -> tuple[Draw, ...]:
        return self._real.draws

    def settle(self, amounts: Amounts, cost: Money | None, now: float) -> None:
        self._real.settle(amounts, cost, now)
        self._ledger.oracle.settled(self._admission, int(amounts[TOKENS]), 0 if cost is None else cost.picos, now)


class WatchedLedger(Ledger):
    """Holds every decision against the oracle's arithmetic."""

    def __init__(self, wall: Callable[[], float]) -> None:
        super().__init__(wall)
        self.oracle = LimitsOracle()
        self.reserved: set[str] = set()
        """Request ids that were admitted."""
        self._model = ""

    def allowances(self, facts: Facts, model: str, now: float) -> tuple[Allowance, ...]:
        self._model = model
        return super().allowances(facts, model, now)

    def reserve(
        self, facts: Facts, allowances: Sequence[Allowance], amounts: Amounts, cost: Money | None, now: float
    ) -> Any:
        tokens = int(amounts[TOKENS])
        picos, utc = 0 if cost is None else cost.picos, self._wall()
        try:
            real = super().reserve(facts, allowances, amounts, cost, now)
        except LimitExceeded as error:
            self.oracle.reserved(facts, self._model, tokens, picos, now, utc, error.limit)
            raise
        self.reserved.add(facts.request_id)
        admission = self.oracle.reserved(facts, self._model, tokens, picos, now, utc, None)
        return WatchedReservation(real, self, admission)

    def configure(self, tenants: Any, now: float, models: Any = ()) -> None:
        tenants = list(tenants)
        super().configure(tenants, now, models)
        self.oracle.configure(_Tenants(tuple(tenants)), now, self._wall())  # type: ignore[arg-type]


@dataclass(slots=True)
class _Tenants:
    tenants: tuple[TenantConfig, ...]


# The gateway notices changes by time alone within these seconds.
SOON = 0.01


@dataclass(slots=True)
class Attempt:
    """One call of a pool."""

    at: float
    request_id: str
    pool: str
    generation: int
    part: str
    """The request, or the rest of its answer that is resumed: each has a first try and perhaps more."""
    picked: bool = True
    """Whether an endpoint was picked for it."""


@dataclass(slots=True, frozen=True)
class Refusal:
    """An endpoint's refusal for lack of capacity."""

    at: float
    subject: RefusalKey
    scope: str
    several: bool
    """Whether the endpoint serves several models."""
    rests: bool
    """Whether the endpoint requires a pause. Without one, a refusal still confirms another."""


class Watch:
    """Attempts of pools, and their violations."""

    def __init__(self) -> None:
        self.refusals: defaultdict[str, list[Refusal]] = defaultdict(list)
        """Refusals by endpoint."""
        self.attempts: list[Attempt] = []
        self.violations: list[str] = []
        self.generation = 0
        """The configuration in force."""
        self.caps: dict[str, int] = {}
        """The most requests that an endpoint of each pool may ever have: requests over a new limit may finish."""


def _is_wide(one: Refusal, before: Sequence[Refusal]) -> bool:
    """Whether a refusal concerns every tenant: the endpoint reports that, or another tenant was refused lately."""
    if one.scope != "unknown":
        return one.scope == "server"
    return any(
        other.subject.tenant != one.subject.tenant
        and (not one.several or other.subject.model == one.subject.model)
        and other.scope != "tenant"
        and one.at - other.at < WITNESS
        for other in before
    )


def _another(one: Refusal, wide: Sequence[Refusal]) -> bool:
    """Whether another model was refused to every tenant lately: then the refusal concerns the endpoint."""
    return any(o.subject.model != one.subject.model and 0 <= one.at - o.at < WITNESS for o in wide)


class WatchedPool:
    """A pool that records its callers, and whether it refused for a reason."""

    def __init__(self, real: Pool, watch: Watch) -> None:
        self._real = real
        self._watch = watch
        self._generation = watch.generation
        watch.caps[real.name] = max(real._max_in_flight, watch.caps.get(real.name, 0))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        real, watch = self._real, self._watch
        assert isinstance(request, GenerateRequest)
        part = f"{call.id} {len(request.fields['messages'])}"
        attempt = Attempt(real._clock(), call.id, real.name, self._generation, part)
        watch.attempts.append(attempt)
        try:
            return await real.call(request, call)
        except Unavailable as error:
            attempt.picked = False
            if real._queue is None:  # a queued request was refused later: `unserved` checks those
                self._judge(error, subject_of(request, call), real._clock())
            raise
        except CapacityError as error:
            subject, pause, reason = subject_of(request, call), bool(error.retry_after), error.reason_of_refusal
            assert reason is not None
            for tried in (*real.endpoints, *real.leaving):  # not one that a reload has removed meanwhile
                if tried.id == reason.facts["endpoint"]:  # not the last one tried: a hedge may have begun meanwhile
                    refusal = Refusal(real._clock(), subject, error.scope, tried.several, pause)
                    watch.refusals[tried.id].append(refusal)
            raise
        finally:
            cap = watch.caps[real.name]
            watch.violations += [
                f"{e.id} has {e.in_flight} in flight of {cap}" for e in real.endpoints if not 0 <= e.in_flight <= cap
            ]

    def _judge(self, error: Unavailable, subject: RefusalKey, now: float) -> None:
        violations, name = self._watch.violations, self._real.name
        if usable := self._usable(subject, now):
            violations.append(f"{name} refused ({error}) and {usable[0]} may take requests")
        if isinstance(error, Resting):
            violations += [
                f"{e.id} rests for {subject}, which was earned by others"
                for e in self._real.endpoints
                if e.rests(subject, now) and not self._has_cause(e.id, subject, now)
            ]

    def _has_cause(self, endpoint: str, subject: RefusalKey, now: float) -> bool:
        """Whether a pause was required of such a request, of the model for every tenant, or of several models so."""
        refusals = self._watch.refusals[endpoint]
        wide = [one for index, one in enumerate(refusals) if _is_wide(one, refusals[:index])]
        for one in refusals:
            if not one.rests or now - one.at >= 2 * LONGEST_REST:
                continue
            same = not one.several or one.subject.model == subject.model  # an endpoint of one model has one rest
            if same and one.subject.tenant == subject.tenant:
                return True
            if one in wide and (same or _another(one, wide)):
                return True
        return False

    def unserved(self) -> None:
        """No request waits while there is a slot."""
        real = self._real
        if real._queue is None:
            return
        now = real._clock() - SOON
        for subject in {subject_of(waiter.request, waiter.call) for waiter in real._queue.line}:
            if usable := self._usable(subject, now):
                self._watch.violations.append(f"{subject} waits for {real.name} and {usable[0]} may take requests")

    def _usable(self, subject: RefusalKey, now: float) -> list[str]:
        """Failed probes, no slot, a requested rest: nothing else makes the last endpoint ineligible."""
        endpoints, panic = self._real.endpoints, self._real._panic
        alive = [e for e in endpoints if e.health != "unhealthy"]
        if len(alive) < panic * len(endpoints):
            alive = endpoints
        free = [e for e in alive if e.in_flight < self._real._max_in_flight]
        if any(e.allows(subject, now) for e in alive):
            return [e.id for e in free if e.allows(subject, now)]
        return [e.id for e in free if not e.rests(subject, now)]
