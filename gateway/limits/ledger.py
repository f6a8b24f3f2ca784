"""The ledger of all limits: reserves before a request, settles after it.

The numbers are this process's own, or those of all processes of the host if there is a table, or Redis's for limits
that select it. Every reservation is settled exactly once, at the end of its request. Nothing is awaited between check
and reservation, except for an exact count in Redis, so no other request comes in between.
"""

import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import ceil
from typing import TYPE_CHECKING

from adapters.errors import LimitExceeded
from config.schema.config import ClientModelConfig, TenantConfig
from config.schema.money import Money
from gateway.limits.account import Account, ModelAccount, Stores, TeamAccount
from gateway.limits.allowance import Allowance, Hold, Refusal, Shadowed
from gateway.limits.drawn import Draw, DrawTotals
from gateway.limits.long_limits import LongLimits, long_limits
from gateway.limits.mutexes import LimitsUnavailable
from gateway.limits.remote.exact import ExactAllowance
from gateway.limits.shared import SharedTable
from gateway.limits.shared_allowance import shared
from gateway.limits.subjects import in_memory
from policies.facts import Facts
from policies.limits.limits import NOTHING, TOKENS, Amounts

if TYPE_CHECKING:
    from gateway.limits.remote.redis_ledger import RedisLedger  # which needs an extra

_YEAR_10000 = 253_402_300_800
SOON = 0.01
"""Seconds to wait if a limit that refused elsewhere would grant the request by now."""
ALL_TENANTS = "all"
"""The kind of subject of a model's own limit, in a reason."""
_SUBJECTS = {
    "tenant": "the whole tenant", "team": "each team", "key": "each key", "model": "each model", "user": "each user",
}  # fmt: skip


class Reservation:
    """The amounts that one request holds of its tenant's limits until it is settled."""

    __slots__ = (
        "_account", "_begun", "_holds", "_key", "_ledger", "_part", "_settled", "_tokens", "draws", "shadowed",
    )  # fmt: skip

    def __init__(
        self,
        account: Account,
        key: str,
        holds: list[Hold],
        tokens: float,
        shadowed: tuple[Shadowed, ...],
        *,
        begun: float,
        ledger: str,
        part: bool = False,
    ) -> None:
        """`begun` is in Unix seconds; `ledger` names the ledger in the records of draws; empty if there are none."""
        self._begun = begun
        self._ledger = ledger
        self.draws: tuple[Draw, ...] = ()
        """What the request has drawn from limits of long periods, once it is settled."""
        self._account = account
        self._key = key
        self._holds = holds
        self._tokens = tokens
        self._settled = False
        self.shadowed = shadowed
        """Limits in shadow mode that would have refused the request."""
        self._part = part
        """Whether another reservation already counts the request: this one only holds additional allowances."""
        if not part:
            account.in_flight += 1
            account.reserved_tokens += tokens

    def add(self, holds: Iterable[Hold], shadowed: tuple[Shadowed, ...]) -> None:
        """Add the holds that were obtained after a wait."""
        self._holds += holds
        self.shadowed += shadowed

    def undo(self, now: float) -> None:
        """Undo the reservation: another limit refused the request."""
        if not self._settled:
            self._leave()
            _undo(self._holds, now)

    def settle(self, amounts: Amounts, cost: Money | None, now: float) -> None:
        """Charge the actual usage and release the rest. Once; later calls change nothing."""
        if self._settled:
            return
        self._leave()
        picos = 0
        if cost is not None:
            picos = cost.picos
            if not self._part:
                self._account.charge(self._key, cost)
        for hold in self._holds:
            hold.allowance.settle(hold, amounts, picos, now)
        if self._ledger and any(allowance.drawn for hold in self._holds for allowance in hold.allowances):
            self.draws = self._drawn(amounts, picos)

    def _drawn(self, amounts: Amounts, picos: int) -> tuple[Draw, ...]:
        """The draws; equal limits of one subject are one name, which counts once."""
        units = {unit.name: unit for hold in self._holds for allowance in hold.allowances for unit in allowance.drawn}
        draws = [unit.draw(self._ledger, amounts, picos, self._begun) for unit in units.values()]
        return tuple(draw for draw in draws if draw is not None)

    def _leave(self) -> None:
        self._settled = True
        if not self._part:
            self._account.in_flight -= 1
            self._account.reserved_tokens -= self._tokens


class Ledger:
    """The accounts of all tenants. `wall` returns Unix seconds, which determine the windows of budgets.

    With a `table`, usage is counted in it, together with all other processes attached to it; limits with another scope
    of counting are counted in `redis`, together with all other gateways.
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        table: SharedTable | None = None,
        redis: "RedisLedger | None" = None,
    ) -> None:
        self.accounts: dict[str, Account] = {}
        self.models: dict[str, ModelAccount] = {}
        """Accounts of models with limits of their own."""
        self.teams: dict[tuple[str, str], TeamAccount] = {}
        """Accounts of teams with limits of their own, by tenant and team."""
        self.awaited: frozenset[str] = frozenset()
        """Tenants whose requests may have to wait for an exact count; `reserve_exactly` is required for them."""
        self.redis = redis
        self._wall = wall
        self.drawn = DrawTotals(secrets.token_hex(16) if table is None else table.name)
        """What is recorded of limits of long periods."""
        self.long = LongLimits()
        """These limits."""
        self._stores: Stores = {"host": in_memory if table is None else shared(table)}
        if table is not None:
            table.wall = wall
        if redis is not None:
            self._stores = {**self._stores, **redis.stores}

    def configure(self, tenants: Iterable[TenantConfig], now: float, models: Iterable[ClientModelConfig] = ()) -> None:
        """Apply a (new) configuration.

        An account without a tenant in the file and without requests in flight is deleted.
        """
        tenants, models, utc = list(tenants), list(models), self._wall()
        self.long = long_limits(tenants, models)
        for tenant in tenants:
            account = self.accounts.get(tenant.name)
            if account is None:
                account = self.accounts[tenant.name] = Account(tenant.name, self._stores, self.drawn)
            account.configure(tenant.limit_list(), now, utc)
        current = {tenant.name for tenant in tenants}
        for name in [n for n, a in self.accounts.items() if n not in current and a.in_flight == 0]:
            self.accounts.pop(name).leave()
        self._configure_teams(tenants, now, utc)
        old, self.models = self.models, {}
        for model in models:
            if quotas := model.limit_list():
                self.models[model.name] = old.get(model.name) or ModelAccount(model.name, self._stores, self.drawn)
                self.models[model.name].limit(quotas, now, utc)
        for name in old.keys() - self.models.keys():
            old[name].leave()
        all_tenants = any(account.awaits for account in self.models.values())
        awaited = {tenant for (tenant, _), account in self.teams.items() if account.awaits}
        awaited |= {name for name, account in self.accounts.items() if all_tenants or account.awaits}
        self.awaited = frozenset(awaited)

    def _configure_teams(self, tenants: Iterable[TenantConfig], now: float, utc: float) -> None:
        old, self.teams = self.teams, {}
        for tenant in tenants:
            for team in tenant.teams:
                place = tenant.name, team.name
                account = self.teams[place] = old.get(place) or TeamAccount(tenant.name, team, self._stores, self.drawn)
                account.configure(team.limit_list(), now, utc)
        for place in old.keys() - self.teams.keys():
            old[place].leave()

    def allowances(self, facts: Facts, model: str, now: float) -> tuple[Allowance, ...]:
        """The allowances that a request for the configured `model` uses."""
        account = self.accounts[facts.tenant]
        of_tenant = account.always if account.is_plain else account.allowances(facts, model, now, self._wall())
        if facts.team and (team := self.teams.get((facts.tenant, facts.team))) is not None:
            of_tenant += team.allowances(facts, model, now, self._wall())
        if self.models and (limits := self.models.get(model)) is not None:
            return of_tenant + limits.always
        return of_tenant

    def is_for_each_request(self, facts: Facts, model: str) -> bool:
        """Whether a request for the configured `model` uses the allowances of any other request with its key."""
        if model in self.models or not self.accounts[facts.tenant].is_for_each_request:
            return False
        team = self.teams.get((facts.tenant, facts.team)) if facts.team else None
        return team is None or team.is_for_each_request

    def shown(self, tenant: str, now: float) -> tuple[Allowance, ...]:
        """The allowances that a tenant's response headers report for a request that uses no limit."""
        account = self.accounts.get(tenant)
        if account is None:
            return ()
        for allowance in account.always:
            allowance.look(now, self._wall())
        return account.always

    def reserve_early(self, tenant: str, key: str, team: str, now: float) -> Reservation | None:
        """Before a body is received: take a request and a concurrency slot from the allowances that every request of
        the key uses.

        It is undone when the request is reserved as a whole. Raises `LimitExceeded` for a request that is refused with
        any body. None if there is nothing to take.
        """
        account = self.accounts.get(tenant)
        if account is None:
            return None
        utc = self._wall()
        allowances = account.of_key(key, team, now, utc)
        if team and (of_team := self.teams.get((tenant, team))) is not None:
            allowances += of_team.of_key(key, team, now, utc)
        if not allowances:
            return None
        return self._reserve(tenant, key, allowances, NOTHING, None, now)

    async def reserve_state(self, tenant: str, key: str, team: str, size: int, now: float) -> Reservation:
        """For a request of `size` bytes that reaches no model: take it from the limits of its tenant, team and key.

        An end user's limit counts it for the key, as every request without a user. Raises `LimitExceeded` and
        `LimitsUnavailable`.
        """
        utc = self._wall()
        accounts = [self.accounts[tenant], *([self.teams[tenant, team]] if (tenant, team) in self.teams else ())]
        allowances = [allowance for account in accounts for allowance in account.of_state(key, team, now, utc)]
        take = partial(self._reserve, tenant, key)
        return await self._with_exact(take, tenant, allowances, (1, 0, 0, size, 0), None, now)

    def reserve(
        self, facts: Facts, allowances: Sequence[Allowance], amounts: Amounts, cost: Money | None, now: float
    ) -> Reservation:
        """Take one request, a slot, and the estimated `amounts` and `cost`, from every allowance or from none.

        Raises `LimitExceeded`, which names the limit with the longest wait.
        """
        return self._reserve(facts.tenant, facts.subject, allowances, amounts, cost, now)

    async def reserve_part(
        self, facts: Facts, allowances: Sequence[Allowance], amounts: Amounts, cost: Money | None, now: float
    ) -> Reservation:
        """Take the same for a part of a request that another reservation already counts, from additional allowances.

        Raises `LimitExceeded` and `LimitsUnavailable`.
        """
        take = partial(self._reserve, facts.tenant, facts.subject, part=True)
        return await self._with_exact(take, facts.tenant, allowances, amounts, cost, now)

    def _reserve(
        self,
        tenant: str,
        key: str,
        allowances: Sequence[Allowance],
        amounts: Amounts,
        cost: Money | None,
        now: float,
        *,
        part: bool = False,
    ) -> Reservation:
        picos, utc = 0 if cost is None else cost.picos, self._wall()
        holds: list[Hold] = []
        shadowed: tuple[Shadowed, ...] = ()
        refused: Allowance | None = None
        try:
            for allowance in allowances:
                hold = allowance.take(amounts, picos, now, utc)
                if hold is not None:
                    holds.append(hold)
                elif allowance.in_shadow:
                    shadowed += _shadowed(allowance, amounts, picos, now, utc)
                else:
                    refused = allowance
                    break
        except LimitsUnavailable:
            _undo(holds, now)
            raise
        if refused is not None:
            _undo(holds, now)
            raise self._exceeded(tenant, refused, allowances, amounts, picos, now, utc)
        of_tenant, ledger = self.accounts[tenant], self.drawn.ledger if self.drawn.is_recorded else ""
        return Reservation(of_tenant, key, holds, amounts[TOKENS], shadowed, begun=utc, ledger=ledger, part=part)

    async def reserve_exactly(
        self, facts: Facts, allowances: Sequence[Allowance], amounts: Amounts, cost: Money | None, now: float
    ) -> Reservation:
        """`reserve` for a tenant with limits that Redis counts exactly. Raises `LimitsUnavailable` too."""
        return await self._with_exact(partial(self.reserve, facts), facts.tenant, allowances, amounts, cost, now)

    async def _with_exact(
        self,
        take: Callable[[Sequence[Allowance], Amounts, Money | None, float], Reservation],
        tenant: str,
        allowances: Sequence[Allowance],
        amounts: Amounts,
        cost: Money | None,
        now: float,
    ) -> Reservation:
        """Reserve by `take`, and in Redis for exact limits."""
        exact = [allowance for allowance in allowances if isinstance(allowance, ExactAllowance)]
        if not exact:
            return take(allowances, amounts, cost, now)
        here = [allowance for allowance in allowances if not isinstance(allowance, ExactAllowance)]
        reservation = take(here, amounts, cost, now)
        assert self.redis is not None
        picos, utc = 0 if cost is None else cost.picos, self._wall()
        try:
            holds, refused = await self.redis.reserve(exact, amounts, picos, utc)
        except BaseException:
            reservation.undo(now)
            raise
        if enforced := [allowance for allowance in refused if not allowance.in_shadow]:
            reservation.undo(now)
            raise self._exceeded(tenant, enforced[0], allowances, amounts, picos, now, utc)
        shadows = [shadow for a in refused for shadow in _shadowed(a, amounts, picos, now, utc)]
        reservation.add(holds, tuple(shadows))
        return reservation

    def _exceeded(
        self,
        tenant: str,
        refused: Allowance,
        allowances: Sequence[Allowance],
        amounts: Amounts,
        picos: int,
        now: float,
        utc: float,
    ) -> LimitExceeded:
        """The error that names the tightest of the limits that refuse: the one with the longest wait."""
        enforced = [a for a in allowances if not a.in_shadow]
        refusals = [r for a in enforced for r in a.refusals(amounts, picos, now, utc)]
        worst = max(refusals, key=lambda r: r.wait, default=Refusal(SOON, refused.units[0], refused))
        config, of_team = worst.allowance.config, ""
        models = f", models {', '.join(config.models)}" if config.models else ""
        owner, subjects, per, subject = tenant, _SUBJECTS[config.per], str(config.per), worst.allowance.name or tenant
        for (of, name), team in self.teams.items():
            if of == tenant and team.limits_with(worst.allowance):
                owner, of_team = f"The team {name} of {tenant}", name
                if config.per == "team":
                    subjects, subject = "the whole team", name
        for name, account in self.models.items():
            if worst.allowance in account.always:
                owner, subjects, models = f"The model {name}", "all tenants together", ""
                per, subject = ALL_TENANTS, name
        resource, limit = "requests at once" if worst.unit == "concurrency" else worst.unit, getattr(config, worst.unit)
        return LimitExceeded(
            f"{owner} is over its limit of {resource}: {limit} for {subjects}{models}. "
            f"Try again in {worst.wait:.1f} s.",
            limit=worst.unit,
            retry_after=worst.wait,
        ).because(
            "limit",
            unit=worst.unit,
            limit=str(limit),
            per=per,
            subject=subject,
            team=of_team,
            models=models.removeprefix(", models "),
            reset=_time_of(utc + worst.wait),
        )


def _time_of(utc: float) -> str | None:
    """RFC 3339, rounded up to the second; None for a time that never comes."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ceil(utc))) if utc < _YEAR_10000 else None


def _undo(holds: Iterable[Hold], now: float) -> None:
    for hold in holds:
        hold.allowance.undo(hold, now)


def _shadowed(allowance: Allowance, amounts: Amounts, picos: int, now: float, utc: float) -> tuple[Shadowed, ...]:
    """The record of a limit in shadow mode that refuses, by its tightest unit."""
    worst: Refusal | None = max(allowance.refusals(amounts, picos, now, utc), key=lambda r: r.wait, default=None)
    return () if worst is None else (Shadowed(worst.unit, allowance.config.per),)
