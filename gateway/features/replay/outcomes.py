"""The outcome of a recorded request under another configuration.

Reproduced: the rights of the client, the model, the route, the arm of every split and rollout, the pools and their
order, and prices. From the record: the failures of pools, the waits in queues, the usage of answers, the shares
of rollouts, and the refusals of limits that are unchanged.
"""

from typing import NamedTuple

from adapters.errors import LimitExceeded
from config.schema.money import Money
from gateway.auth.keys import Principal
from gateway.features.recording.entries import PolicyFrame, RecordEntry, Usages
from gateway.features.recording.policy import NOT_FOUND, NOT_IN_SCOPE, Predicted, RecordedPolicy
from policies.limits.price import Price

LIMITED = LimitExceeded.code
_BY_POLICY = frozenset({NOT_FOUND, NOT_IN_SCOPE, LIMITED})
_ANYWHERE = frozenset({"caller", "credential", "deadline", "cancelled"})
"""Kinds of failures that another pool would not have prevented."""


class RequestOutcome(NamedTuple):
    """The outcome of a request under a policy."""

    refused: str = ""
    """The code of the policy's refusal."""
    arm: str | None = None
    pool: str = ""
    """The pool that answers, or that failed last."""
    failed: str = ""
    """The kind of the failure of all pools; empty for an answer."""
    cost: Money | None = None


def recorded_outcome(entry: RecordEntry) -> RequestOutcome:
    """The outcome in the record."""
    cost = None if entry.cost is None else Money(*entry.cost)
    if entry.error and entry.code in _BY_POLICY and not entry.attempts:
        return RequestOutcome(entry.code)
    return RequestOutcome("", entry.arm, entry.pool, entry.error, cost)


class Comparer:
    """Predicts outcomes under a new policy, for requests that were recorded under one old policy."""

    def __init__(self, old: PolicyFrame, new: RecordedPolicy) -> None:
        self._new = new
        names = old.digests.keys() | new.digests.keys()
        self._changed = frozenset(name for name in names if old.digests.get(name) != new.digests.get(name))
        self._spending = frozenset(
            tenant.name for tenant in new.config.tenants if any(limit.spend for limit in tenant.limit_list())
        )

    @property
    def is_same(self) -> bool:
        """Whether no decision can differ."""
        return not self._changed

    def limits_changed(self, tenant: str, model: str) -> bool:
        """Whether limits that apply to a request are not those of the record."""
        if not self._changed:
            return False
        spends = tenant in self._spending and f"price {model}" in self._changed
        return f"limits {tenant}" in self._changed or f"quotas {model}" in self._changed or spends

    def decision(self, entry: RecordEntry, principal: Principal) -> Predicted:
        """The decision of the new policy. A request whose decision its facts do not reproduce is decided as recorded,
        if its model and its tenant are unchanged."""
        if not entry.reproduces and self._is_unchanged(entry, principal.tenant):
            if entry.route < 0:
                return Predicted(entry.code)
            return Predicted("", entry.configured, entry.route, entry.arm, entry.pools)
        return self._new.decide(entry, principal)

    def _is_unchanged(self, entry: RecordEntry, tenant: str) -> bool:
        if not entry.configured:
            return not self._changed
        return f"model {entry.configured}" not in self._changed and f"tenant {tenant}" not in self._changed

    def outcome(
        self, entry: RecordEntry, before: RequestOutcome, decided: Predicted, limited: bool | None
    ) -> RequestOutcome:
        """The outcome of a decision. `limited` is the result of simulated limits; None takes it from the record."""
        if decided.refused:
            return RequestOutcome(decided.refused)
        if limited or (limited is None and before.refused == LIMITED):
            return RequestOutcome(LIMITED)
        if not entry.model:  # refused before its body was read: by an early limit, or for its form
            return RequestOutcome("", None, "", before.failed)
        if before.refused:
            pool = decided.pools[0] if decided.pools else ""
            return RequestOutcome("", decided.arm, pool, "", self._estimate(entry, decided))
        pool, failed = self._answering(entry, decided)
        return RequestOutcome("", decided.arm, pool, failed, self._cost(entry, before, decided, failed))

    def _answering(self, entry: RecordEntry, decided: Predicted) -> tuple[str, str]:
        """The pool that answers, and the failure if none does. A pool fails if it failed in the record."""
        if decided.pools == entry.pools or not decided.pools or entry.cached or entry.error in _ANYWHERE:
            moved = entry.error in _ANYWHERE and decided.pools != entry.pools and decided.pools
            return (decided.pools[0] if moved else entry.pool), entry.error
        failed = set(entry.pools) if entry.error else set(entry.pools[: _place(entry.pool, entry.pools)])
        healthy = [pool for pool in decided.pools if pool not in failed]
        return (healthy[0], "") if healthy else (decided.pools[-1], entry.error or "capacity")

    def _cost(self, entry: RecordEntry, before: RequestOutcome, decided: Predicted, failed: str) -> Money | None:
        if failed and not entry.error:
            return None
        if decided.configured == entry.configured and f"price {entry.configured}" not in self._changed:
            return before.cost
        price, usage = self._new.prices.get(decided.configured), entry.usage
        if price is None or usage is None:
            return None if price is None and before.cost is not None else before.cost
        return cost_of(entry, usage, price)

    def _estimate(self, entry: RecordEntry, decided: Predicted) -> Money | None:
        price: Price | None = self._new.prices.get(decided.configured)
        if price is None:
            return None
        return price.at(_begin(entry)).estimate(entry.prompt_tokens, entry.max_tokens, entry.n)


def cost_of(entry: RecordEntry, usage: Usages, price: Price) -> Money:
    """The cost of a recorded usage, by the price of the time at which the request began."""
    parts = usage.cached_tokens, usage.reasoning_tokens, usage.cache_write_tokens
    return price.at(_begin(entry)).cost(usage.prompt_tokens, usage.completion_tokens, *parts)


def _begin(entry: RecordEntry) -> float:
    """Unix seconds of the decision; of the arrival, for a request without one."""
    return entry.decided or entry.arrival / 1e9


def _place(pool: str, pools: tuple[str, ...]) -> int:
    return pools.index(pool) if pool in pools else 0
