"""What each tenant may still use: reserve before, settle after.

The numbers are this process' own or, where there is a table, those of all processes of the host. Every
reservation is settled exactly once, by whoever ends the request. Nothing is awaited between looking and taking, so
no other request comes in between.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from adapters.errors import LimitExceeded
from config.limits import Per
from config.money import Money
from config.schema import LimitsConfig, TenantConfig
from gateway.limits.allowance import Allowance, Hold, Refusal, Shadowed
from gateway.limits.shared import SharedTable
from gateway.limits.shared_allowance import shared
from gateway.limits.subjects import MAX_SUBJECTS, WHOLE_TENANT, Limit, Store, in_memory
from policies.amounts import TOKENS, Amounts
from policies.facts import Facts

Scope = tuple[Per, tuple[str, ...] | None, int]
OTHER_KEYS = "(others)"
_WHOM = {"tenant": "the whole tenant", "key": "each key", "model": "each model", "user": "each user"}


class Account:
    """One tenant's limits, what it holds and what it has spent. Outlives reloads."""

    __slots__ = ("_limits", "_store", "always", "in_flight", "is_plain", "limits", "reserved_tokens", "spent", "tenant")

    def __init__(self, tenant: str, store: Store = in_memory) -> None:
        self.tenant = tenant
        self._store = store
        self.limits: tuple[Limit, ...] = ()
        self._limits: dict[Scope, Limit] = {}
        self.in_flight = 0
        self.reserved_tokens: float = 0
        """Estimates of the requests in flight."""
        self.spent: Counter[tuple[str, str]] = Counter()
        """Picos by key and currency, since this process began; keys beyond `MAX_SUBJECTS` are `OTHER_KEYS`."""
        self.always: tuple[Allowance, ...] = ()
        """What every request draws on, whatever its key, model and user."""
        self.is_plain = True
        """Whether that is all that any request draws on."""

    def configure(self, limits: Sequence[LimitsConfig], now: float, utc: float) -> None:
        """Apply the limits of a (new) configuration.

        A limit of the same scope goes on with what was used: the first of a scope in the file takes over from
        the first there was, and so on. The enforced ones come first: what they refuse counts in no shadow.
        """
        old, self._limits = self._limits, {}
        for scope, config in zip(_scopes(limits), limits, strict=True):
            name = "\0".join([self.tenant, *map(str, scope)])
            self._limits[scope] = limit = old[scope] if scope in old else Limit(config, self._store, name)
            limit.configure(config, now, utc)
        self.limits = tuple(sorted(self._limits.values(), key=lambda limit: limit.config.enforce == "shadow"))
        self.always = tuple(limit.of(WHOLE_TENANT, now, utc) for limit in self.limits if limit.is_for_all)
        self.is_plain = len(self.always) == len(self.limits)

    def allowances(self, facts: Facts, model: str, now: float, utc: float) -> tuple[Allowance, ...]:
        """What a request draws on. `model` is the configured one, where `facts` has the one asked for."""
        asked = facts.model
        return tuple(limit.allowance(facts, model, now, utc) for limit in self.limits if limit.covers(asked))

    def charge(self, key: str, cost: Money) -> None:
        """Remember what a key has spent."""
        entry = (key, cost.currency)
        if entry not in self.spent and len(self.spent) >= MAX_SUBJECTS:
            entry = (OTHER_KEYS, cost.currency)
        self.spent[entry] += cost.picos


class Reservation:
    """What one request holds of its tenant's limits until it is settled."""

    __slots__ = ("_account", "_holds", "_key", "_settled", "_tokens", "shadowed")

    def __init__(
        self, account: Account, key: str, holds: list[Hold], tokens: float, shadowed: tuple[Shadowed, ...]
    ) -> None:
        self._account = account
        self._key = key
        self._holds = holds
        self._tokens = tokens
        self._settled = False
        self.shadowed = shadowed
        """Limits in shadow that would have refused the request."""
        account.in_flight += 1
        account.reserved_tokens += tokens

    def settle(self, amounts: Amounts, cost: Money | None, now: float) -> None:
        """Charge what was truly used and give back the rest. Once; later calls change nothing."""
        if self._settled:
            return
        self._settled = True
        account = self._account
        account.in_flight -= 1
        account.reserved_tokens -= self._tokens
        picos = 0
        if cost is not None:
            picos = cost.picos
            account.charge(self._key, cost)
        for hold in self._holds:
            hold.allowance.settle(hold, amounts, picos, now)


class Ledger:
    """The accounts of all tenants. `wall` gives Unix seconds, which budgets of the calendar go by.

    With a `table`, what is used is counted in it, with all other processes that are attached to it.
    """

    def __init__(self, wall: Callable[[], float] = time.time, table: SharedTable | None = None) -> None:
        self.accounts: dict[str, Account] = {}
        self._wall = wall
        self._store = in_memory if table is None else shared(table)
        if table is not None:
            table.wall = wall

    def configure(self, tenants: Iterable[TenantConfig], now: float) -> None:
        """Apply a (new) configuration. A tenant that left and has nothing in flight is forgotten."""
        tenants, utc = list(tenants), self._wall()
        for tenant in tenants:
            account = self.accounts.setdefault(tenant.name, Account(tenant.name, self._store))
            account.configure(tenant.limit_list(), now, utc)
        kept = {tenant.name for tenant in tenants}
        for name in [n for n, a in self.accounts.items() if n not in kept and a.in_flight == 0]:
            del self.accounts[name]

    def allowances(self, facts: Facts, model: str, now: float) -> tuple[Allowance, ...]:
        """What a request for the configured `model` draws on."""
        account = self.accounts[facts.tenant]
        if account.is_plain:
            return account.always
        return account.allowances(facts, model, now, self._wall())

    def shown(self, tenant: str, now: float) -> tuple[Allowance, ...]:
        """What to tell a tenant of, whose request draws on nothing."""
        account = self.accounts.get(tenant)
        if account is None:
            return ()
        for allowance in account.always:
            allowance.look(now, self._wall())
        return account.always

    def reserve(
        self, facts: Facts, allowances: Sequence[Allowance], amounts: Amounts, cost: Money | None, now: float
    ) -> Reservation:
        """Take one request, a place, and the estimated `amounts` and `cost`, of every allowance or of none.

        Raises `LimitExceeded`, which names the one that has to be waited for longest.
        """
        picos, utc = (0, 0.0) if cost is None else (cost.picos, self._wall())  # no budget covers what has no price
        holds: list[Hold] = []
        shadowed: tuple[Shadowed, ...] = ()
        for allowance in allowances:
            hold = allowance.take(amounts, picos, now, utc)
            if hold is not None:
                holds.append(hold)
            elif allowance.in_shadow:
                worst = _worst(allowance.refusals(amounts, picos, now, utc))
                shadowed += (Shadowed(worst.unit, allowance.config.per),)
            else:
                for taken in holds:
                    taken.allowance.undo(taken, now)
                enforced = [a for a in allowances if not a.in_shadow]
                refusals = [refusal for a in enforced for refusal in a.refusals(amounts, picos, now, utc)]
                raise _exceeded(facts.tenant, _worst(refusals))
        return Reservation(self.accounts[facts.tenant], facts.key, holds, amounts[TOKENS], shadowed)


def _scopes(limits: Iterable[LimitsConfig]) -> list[Scope]:
    """Whom each is for, of which models, and which one of that scope it is."""
    seen: Counter[tuple[Per, tuple[str, ...] | None]] = Counter()
    scopes = []
    for limit in limits:
        scope = (limit.per, limit.models)
        scopes.append((*scope, seen[scope]))
        seen[scope] += 1
    return scopes


def _worst(refusals: Iterable[Refusal]) -> Refusal:
    """The tightest of the limits that refuse: the one that has to be waited for longest."""
    return max(refusals, key=lambda refusal: refusal.wait)


def _exceeded(tenant: str, worst: Refusal) -> LimitExceeded:
    config = worst.allowance.config
    scope = _WHOM[config.per] + (f", models {', '.join(config.models)}" if config.models else "")
    what = "requests at once" if worst.unit == "concurrency" else worst.unit
    return LimitExceeded(
        f"{tenant} is over its limit of {what}: {getattr(config, worst.unit)} for {scope}. "
        f"Try again in {worst.wait:.1f} s.",
        limit=worst.unit,
        retry_after=worst.wait,
    )
