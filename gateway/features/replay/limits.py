"""Limits that differ from those of the record, simulated in virtual time with the gateway's own ledger.

Each request reserves at its recorded moment, in the order of the record, and settles its recorded usage after its
recorded duration. A request that the recorded limits refused has neither: the means of its model take their place.
With a share below 100 %, each limit is reduced to that share of its amount.
"""

import heapq
from collections.abc import Iterator
from typing import Any, NamedTuple

from adapters.errors import LimitExceeded
from config.schema.config import Config, LimitsConfig, QuotaConfig, TenantConfig
from gateway.auth.keys import Principal
from gateway.features.recording.entries import RecordEntry
from gateway.features.recording.policy import Predicted, RecordedPolicy
from gateway.features.recording.stand_ins import subject_of
from gateway.features.replay.outcomes import cost_of
from gateway.limits.ledger import Ledger, Reservation
from policies.facts import Facts
from policies.limits.limits import RATED, Amounts
from policies.limits.price import expected_output

_MEAN_OF = 0.05
"""The weight of the latest answer in the moving means of a model."""


class LimitedRequest(NamedTuple):
    """A request whose limits are simulated."""

    entry: RecordEntry
    principal: Principal
    decided: Predicted


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
        entry, principal, decided = request
        now = self._now = max(self._now, entry.decided or entry.arrival / 1e9)
        while self._running and self._running[0][0] <= now:
            at, _, reservation, amounts, cost = heapq.heappop(self._running)
            reservation.settle(amounts, cost, at)
        tenant = principal.tenant
        if not entry.model:
            allowances = self._ledger.accounts[tenant].of_key(principal.key_id, principal.team, now, now)
            return any(each.refusals((1, 0, 0, 0, 0), 0, now, now) for each in allowances)
        user = subject_of(entry.user) or None
        facts = Facts(
            tenant, principal.key_id, entry.model, {}, entry.stream, entry.prompt_tokens, user, entry.id,
            team=principal.team,
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
