"""The replay of policies: each recorded request under a new configuration, in virtual time.

Limits that differ from those of the record are simulated with the gateway's own ledger. Each request reserves at its
recorded moment, in the order of the record, and settles its recorded usage after its recorded duration. A request that
the recorded limits refused has neither: the means of its model take their place. With a share below 100 %, each limit
is reduced to that share of its amount.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from adapters.errors import LimitExceeded
from config.schema.config import Config, LimitsConfig, QuotaConfig, TenantConfig
from config.schema.rollout import RolloutConfig
from gateway.auth.keys import Principal
from gateway.features.recording.entries import PolicyFrame, RecordEntry
from gateway.features.recording.policy import Predicted, RecordedPolicy, subject_of
from gateway.features.replay.guarding import Change, GuardReplay
from gateway.features.replay.outcomes import Comparer, cost_of, recorded_outcome
from gateway.features.replay.records import RecordedRequest
from gateway.features.replay.report import Report
from gateway.limits.ledger import Ledger, Reservation
from policies.facts import Facts
from policies.limits.limits import RATED, Amounts
from policies.limits.price import expected_output
from policies.rollouts.counting import FAILED

_MEAN_OF = 0.05
"""The weight of the latest answer in the moving means of a model."""
EACH = 4096
"""Requests between two reports of the progress."""


class LimitedRequest(NamedTuple):
    """A request whose limits are simulated."""

    entry: RecordEntry
    principal: Principal
    decided: Predicted
    guards: Sequence[Change] = ()
    """The changed verdicts of guards."""


class _Means:
    """The mean output and duration of the answers of a model."""

    def __init__(self) -> None:
        self.tokens = 0.0
        self.seconds = 0.0
        self._count = 0

    def add(self, tokens: int, seconds: float) -> None:
        self._count += 1
        weight = max(_MEAN_OF, 1 / self._count)
        self.tokens += weight * (tokens - self.tokens)
        self.seconds += weight * (seconds - self.seconds)


class SimulatedLimits:
    """The limits of a configuration, in virtual time."""

    def __init__(self, policy: RecordedPolicy, share: float) -> None:
        self._policy = policy
        self._now = 0.0
        self._ledger = Ledger(lambda: self._now)
        self._share = share
        self.ignored: list[str] = []
        """Limits whose recorded share is below one unit, which cannot be simulated."""
        self._config: Config = policy.config
        self._running: list[tuple[float, int, Reservation, Amounts, Any]] = []
        self._count = 0
        self._means: dict[str, _Means] = {}

    def run(self, requests: list[LimitedRequest]) -> Iterator[tuple[LimitedRequest, bool]]:
        """Each request in the order of time, and whether a limit refuses it."""
        requests = sorted(requests, key=lambda request: request.entry.arrival)
        if requests:
            self._now = requests[0].entry.arrival / 1e9
            self._configure()
        for request in requests:
            yield request, self._refuses(request)

    def _configure(self) -> None:
        tenants = [self._scaled_tenant(tenant) for tenant in self._config.tenants]
        models = [
            model.model_copy(update={"limits": tuple(map(self._scaled, model.limit_list()))})
            for model in self._config.models
        ]
        self._ledger.configure(tenants, self._now, models)

    def _scaled_tenant(self, tenant: TenantConfig) -> TenantConfig:
        teams = [
            team.model_copy(update={"limits": tuple(map(self._scaled, team.limit_list()))}) for team in tenant.teams
        ]
        limits = tuple(map(self._scaled, tenant.limit_list()))
        return tenant.model_copy(update={"limits": limits, "teams": tuple(teams)})

    def _scaled(self, limit: Any) -> Any:
        """The recorded share of a limit, counted here."""
        assert isinstance(limit, LimitsConfig | QuotaConfig)
        changes: dict[str, Any] = {"count": "host"}
        if self._share < 1:
            for unit in RATED:
                if (rate := getattr(limit, unit)) is not None:
                    scaled = type(rate)(rate.amount * self._share, rate.period)
                    changes[unit] = scaled if scaled.amount >= 1 else self._ignored(f"{unit} {rate}")
            if limit.concurrency is not None:
                most = round(limit.concurrency * self._share)
                changes["concurrency"] = most or self._ignored(f"concurrency {limit.concurrency}")
            if limit.spend is not None:
                changes["spend"] = limit.spend._replace(picos=int(limit.spend.picos * self._share))
        return limit.model_copy(update=changes)

    def _ignored(self, limit: str) -> object:
        """Note that a limit is not applied. Returns the value of an absent limit."""
        if limit not in self.ignored:
            self.ignored.append(limit)
        return None

    def _refuses(self, request: LimitedRequest) -> bool:
        entry, principal, decided, _ = request
        now = self._now = max(self._now, entry.decided or entry.arrival / 1e9)
        while self._running and self._running[0][0] <= now:
            at, _, reservation, amounts, cost = heapq.heappop(self._running)
            reservation.settle(amounts, cost, at)
        tenant = principal.tenant
        if not entry.model:
            allowances = self._ledger.accounts[tenant].of_key(principal.subject, principal.team, now, now)
            return any(each.refusals((1, 0, 0, 0, 0), 0, now, now) for each in allowances)
        user = subject_of(entry.user) or None
        facts = Facts(
            tenant, principal.key_id, entry.model, {}, entry.stream, entry.prompt_tokens, user, entry.id,
            team=principal.team, lineage=principal.lineage,
        )  # fmt: skip
        price = self._policy.prices.get(decided.configured)
        estimated: Amounts = (1, entry.prompt_tokens + expected_output(entry.max_tokens, entry.n), entry.rows,
                              entry.size, 0)  # fmt: skip
        if len(entry.amounts) == len(RATED):
            estimated = entry.amounts  # type: ignore[assignment]
        cost = None if price is None else price.at(now).estimate(entry.prompt_tokens, entry.max_tokens, entry.n)
        allowances = self._ledger.allowances(facts, decided.configured, now)
        try:
            reservation = self._ledger.reserve(facts, allowances, estimated, cost, now)
        except LimitExceeded:
            return True
        self._end(entry, decided.configured, reservation, now)
        return False

    def _end(self, entry: RecordEntry, model: str, reservation: Reservation, now: float) -> None:
        """Settle the request at its end."""
        means, usage, price = self._means.setdefault(model, _Means()), entry.usage, self._policy.prices.get(model)
        if entry.error and not entry.attempts and usage is None:  # refused in the record
            tokens, seconds = round(means.tokens), means.seconds
            amounts: Amounts = (1, entry.prompt_tokens + tokens, entry.rows, entry.size, 0)
            cost = None if price is None else price.at(now).cost(entry.prompt_tokens, tokens)
        elif usage is None:
            amounts, cost, seconds = (0, 0, 0, 0, 0), None, entry.end
        else:
            total = usage.prompt_tokens + usage.completion_tokens
            amounts = (1, total, usage.rows, entry.size + usage.bytes, usage.device_ms)
            cost = None if price is None else cost_of(entry, usage, price)
            seconds = entry.end
            means.add(usage.completion_tokens, seconds)
        self._count += 1
        heapq.heappush(self._running, (now + seconds, self._count, reservation, amounts, cost))


def replay_policies(
    requests: Iterable[RecordedRequest], config: Config, advanced: Callable[[int], None] = lambda _: None
) -> Report:
    """Decide each request under a configuration. Raises `RecordError`, and `FleetError` for a guard that cannot be
    compiled.

    Requests whose limits changed are held until all are read, because limits depend on the order of time.
    """
    policy, report = RecordedPolicy(config), Report()
    guarding = GuardReplay(policy)
    comparers: dict[int, tuple[PolicyFrame, Comparer]] = {}
    principals: dict[int, tuple[object, Principal]] = {}
    limited: list[tuple[LimitedRequest, Comparer]] = []
    share = 1.0
    for number, request in enumerate(requests):
        entry, holder, frame, _ = request
        if not number % EACH:
            advanced(number)
        share = frame.share
        if (one := comparers.get(id(frame))) is None:
            one = comparers[id(frame)] = (frame, Comparer(frame, policy))
        if (cached := principals.get(id(holder))) is None:
            if len(principals) > EACH:
                principals.clear()
            cached = principals[id(holder)] = (holder, policy.principal(holder))
        comparer, principal = one[1], cached[1]
        decided = comparer.decision(entry, principal)
        model = decided.configured or entry.configured
        verdicts = guarding.changes(request, decided, principal)
        if not decided.refused and comparer.limits_changed(principal.tenant, model):
            limited.append((LimitedRequest(entry, principal, decided, verdicts), comparer))
            continue
        before = recorded_outcome(entry)
        report.add(entry, before, comparer.outcome(entry, before, decided, None), verdicts)
    _replay_limited(limited, policy, share, report)
    report.notes += guarding.notes()
    missing = sorted((policy.read_headers | policy.sticky_headers) - _recorded_headers(comparers.values()))
    if missing and report.requests:
        report.notes.append(f"Not in the record, so absent here: the headers {', '.join(missing)}.")
    return report


def _replay_limited(
    limited: list[tuple[LimitedRequest, Comparer]], policy: RecordedPolicy, share: float, report: Report
) -> None:
    limits = SimulatedLimits(policy, share)
    comparers = {id(request.entry): comparer for request, comparer in limited}
    for request, refused in limits.run([request for request, _ in limited]):
        entry = request.entry
        before = recorded_outcome(entry)
        after = comparers[id(entry)].outcome(entry, before, request.decided, refused)
        report.add(entry, before, after, () if refused else request.guards)
    if limited:
        report.notes.append(f"The limits of {len(limited):,} requests changed, and were simulated.")
    if limits.ignored:
        report.notes.append(f"Too small for a record of {share:.3%}, and ignored: {', '.join(limits.ignored)}.")


def _recorded_headers(comparers: Iterable[tuple[PolicyFrame, Comparer]]) -> frozenset[str]:
    """The headers that every policy recorded."""
    recorded = [frozenset(frame.headers) for frame, _ in comparers]
    return frozenset.intersection(*recorded) if recorded else frozenset()


class RolloutTraffic(NamedTuple):
    """The traffic of one rollout's route."""

    rollout: RolloutConfig
    requests: float
    """In 1/s: the rate of all requests, not only of the recorded ones."""
    failures: float
    """The share of requests that fail."""
    recorded: int
    is_bound: bool
    """Whether no recorded request failed: `failures` is then the share of one failure."""


def rollout_traffic(requests: Iterable[RecordedRequest], config: Config) -> Iterator[RolloutTraffic]:
    """The traffic of each rollout of the configuration that recorded requests reach."""
    policy = RecordedPolicy(config)
    places = {
        (model.name, index): route.rollout
        for model in config.models
        for index, route in enumerate(model.routes)
        if route.rollout is not None
    }
    counts, failed, weights = dict.fromkeys(places, 0), dict.fromkeys(places, 0), dict.fromkeys(places, 0.0)
    first, last = float("inf"), 0.0
    for entry, holder, frame, _ in requests:
        at = entry.arrival / 1e9
        first, last = min(first, at), max(last, at)
        decided = policy.decide(entry, policy.principal(holder))
        place = (decided.configured, decided.route)
        if place in places and entry.model:
            counts[place] += 1
            weights[place] += 1 / frame.share if frame.share else 0.0
            failed[place] += entry.error in FAILED and bool(entry.attempts)
    seconds = max(last - first, 1.0)
    for place, rollout in places.items():
        if counts[place]:
            share = max(failed[place], 1) / counts[place]
            yield RolloutTraffic(rollout, weights[place] / seconds, share, counts[place], not failed[place])
