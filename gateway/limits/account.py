"""The limits of one tenant, and of one model."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from config.schema.limits import Count, LimitsConfig, Per, QuotaConfig
from config.schema.money import Money
from config.schema.tenant import TeamConfig
from gateway.limits.allowance import Allowance
from gateway.limits.drawn import DrawTotals, units_of
from gateway.limits.long_limits import limits_of_model, model_owner, team_owner
from gateway.limits.subjects import MAX_SUBJECTS, WHOLE, Limit, Store
from policies.facts import Facts

Scope = tuple[Per, tuple[str, ...] | None, Count, int]
Stores = Mapping[str, Store]
"""Stores of allowances, by the scope of counting."""
OTHER_KEYS = "(others)"
MOST_GONE = 16
"""Limits that an account remembers after a reload has removed them."""


class Account:
    """The limits of one tenant, its reservations and its spend. Survives reloads."""

    __slots__ = (
        "_drawn",
        "_gone",
        "_limits",
        "_stores",
        "always",
        "in_flight",
        "is_for_each_request",
        "is_plain",
        "limits",
        "reserved_tokens",
        "spent",
        "tenant",
    )

    def __init__(self, tenant: str, stores: Stores, drawn: DrawTotals | None = None) -> None:
        self.tenant = tenant
        self._stores = stores
        self._drawn = drawn
        self.limits: tuple[Limit, ...] = ()
        self._limits: dict[Scope, Limit] = {}
        self._gone: dict[Scope, Limit] = {}
        """Limits that are not in the file any more, for the case that they come back. One that is forgotten begins with
        what is recorded."""
        self.in_flight = 0
        self.reserved_tokens: float = 0
        """Sum of the estimates of the requests in flight."""
        self.spent: Counter[tuple[str, str]] = Counter()
        """Picos by key and currency, since this process began; keys beyond `MAX_SUBJECTS` are `OTHER_KEYS`."""
        self.always: tuple[Allowance, ...] = ()
        """The allowances that every request uses, for every key, model and user."""
        self.is_plain = True
        """Whether `always` contains every allowance that a request uses."""
        self.is_for_each_request = True
        """Whether all requests with one key use the same allowances, for every model and user."""

    def configure(self, limits: Sequence[LimitsConfig], now: float, utc: float) -> None:
        """Apply the limits of a (new) configuration.

        A limit of the same scope continues with its usage: the first of a scope in the file replaces the first of the
        old configuration, and so on. Enforced limits come first: a request that they refuse does not count in a shadow
        limit.
        """
        old, self._limits = self._limits, {}
        for scope, config in zip(_scopes(limits), limits, strict=True):
            name = "\0".join([self.tenant, *map(str, scope)])
            limit = old.pop(scope, None) or self._gone.pop(scope, None)
            if limit is None:
                limit = Limit(config, self._stores[config.count], name, owner=self.tenant, drawn=self._drawn)
            limit.configure(config, now, utc)
            self._limits[scope] = limit
        for limit in old.values():
            limit.leave()
        self._gone |= {scope: limit for scope, limit in old.items() if units_of(limit.config, "", "")}
        for scope in list(self._gone)[:-MOST_GONE]:
            del self._gone[scope]
        self.limits = tuple(sorted(self._limits.values(), key=lambda limit: limit.config.enforce == "shadow"))
        self.always = tuple(limit.of(WHOLE, now, utc) for limit in self.limits if limit.is_for_all)
        self.is_plain = len(self.always) == len(self.limits)
        self.is_for_each_request = all(limit.is_for_each_request for limit in self.limits)

    def leave(self) -> None:
        """Forget all limits: the account is removed."""
        for limit in self.limits:
            limit.leave()

    @property
    def awaits(self) -> bool:
        """Whether a request may have to wait for an exact count."""
        return any(limit.config.count == "exact" for limit in self.limits)

    def allowances(self, facts: Facts, model: str, now: float, utc: float) -> tuple[Allowance, ...]:
        """The allowances that a request uses. `model` is the configured name; `facts` has the requested name."""
        requested = facts.model
        return tuple(
            [
                limit.of(limit.subject_of(facts, model), now, utc)
                for limit in self.limits
                if limit.models is None or requested in limit.models
            ]
        )

    def of_key(self, key: str, team: str, now: float, utc: float) -> tuple[Allowance, ...]:
        """The allowances that every request with a key uses, for every model and user, if they are counted on this
        host.
        """
        limits = [limit for limit in self.limits if limit.is_for_each_request and limit.config.count == "host"]
        return tuple(limit.of_key(key, team, now, utc) for limit in limits if limit.config.enforce != "shadow")

    def of_state(self, key: str, team: str, now: float, utc: float) -> tuple[Allowance, ...]:
        """The allowances that a request without a model uses."""
        limits = [limit for limit in self.limits if limit.models is None and limit.config.per != "model"]
        return tuple(limit.of_key(key, team, now, utc) for limit in limits)

    def charge(self, key: str, cost: Money) -> None:
        """Add to the spend of a key."""
        entry = (key, cost.currency)
        if entry not in self.spent and len(self.spent) >= MAX_SUBJECTS:
            entry = (OTHER_KEYS, cost.currency)
        self.spent[entry] += cost.picos


class TeamAccount(Account):
    """The limits of one team. Its requests in flight and its spend are those of its tenant's account."""

    __slots__ = ("name",)

    def __init__(self, tenant: str, team: TeamConfig, stores: Stores, drawn: DrawTotals | None = None) -> None:
        super().__init__(team_owner(tenant, team.name), stores, drawn)
        self.name = team.name

    def limits_with(self, allowance: Allowance) -> bool:
        """Whether an allowance is of a limit of this team."""
        return any(limit.config is allowance.config for limit in self.limits)


class ModelAccount(Account):
    """The limits of one model, for all tenants together. Every request for it uses all of them."""

    __slots__ = ()

    def __init__(self, model: str, stores: Stores, drawn: DrawTotals | None = None) -> None:
        super().__init__(model_owner(model), stores, drawn)

    def limit(self, quotas: Iterable[QuotaConfig], now: float, utc: float) -> None:
        """Apply the limits of a (new) configuration."""
        self.configure(limits_of_model(quotas), now, utc)
        self.always = tuple(limit.of(WHOLE, now, utc) for limit in self.limits)
        self.is_plain = True


def _scopes(limits: Iterable[LimitsConfig]) -> list[Scope]:
    """The scope of each limit: its subject, its models, where it is counted, and its index among those of one scope."""
    seen: Counter[tuple[Per, tuple[str, ...] | None, Count]] = Counter()
    scopes = []
    for limit in limits:
        scope = (limit.per, limit.models, limit.count)
        scopes.append((*scope, seen[scope]))
        seen[scope] += 1
    return scopes
