"""What each tenant may still use: reserve before, settle after.

In memory, for one process. Every reservation is settled exactly once, by whoever ends the request.
"""

import sys
from collections.abc import Iterable
from typing import Literal

from adapters.errors import LimitExceeded
from config.schema import LimitsConfig, TenantConfig
from config.units import RateLimit
from policies.limits import Concurrency, TokenBucket

Unit = Literal["requests", "tokens"]
CONCURRENCY_RETRY_AFTER = 1.0


class Account:
    """One tenant's buckets. Outlives reloads: a new limit keeps the share already used."""

    __slots__ = ("buckets", "concurrency", "limits", "reserved_tokens", "tenant")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.limits = LimitsConfig()
        self.buckets: dict[Unit, TokenBucket] = {}
        self.concurrency = Concurrency(sys.maxsize)
        self.reserved_tokens = 0.0

    def configure(self, limits: LimitsConfig, now: float) -> None:
        """Apply the limits of a (new) configuration."""
        self.limits = limits
        self._bucket("requests", limits.requests, now)
        self._bucket("tokens", limits.tokens, now)
        self.concurrency.limit = limits.concurrency or sys.maxsize

    def _bucket(self, unit: Unit, rate: RateLimit | None, now: float) -> None:
        if rate is None:
            self.buckets.pop(unit, None)
        elif unit in self.buckets:
            self.buckets[unit].resize(rate.amount, rate.period, now)
        else:
            self.buckets[unit] = TokenBucket(rate.amount, rate.period, now)


class Reservation:
    """What one request holds of its tenant's limits until it is settled."""

    __slots__ = ("_account", "_settled", "_tokens")

    def __init__(self, account: Account, tokens: float) -> None:
        self._account = account
        self._tokens = tokens
        self._settled = False
        account.reserved_tokens += tokens

    def settle(self, tokens: float, now: float) -> None:
        """Charge what was truly used and give back the rest. Once; later calls change nothing."""
        if self._settled:
            return
        self._settled = True
        account = self._account
        account.concurrency.release()
        account.reserved_tokens -= self._tokens
        if bucket := account.buckets.get("tokens"):
            bucket.settle(self._tokens, tokens, now)


class Ledger:
    """The accounts of all tenants."""

    def __init__(self) -> None:
        self.accounts: dict[str, Account] = {}

    def configure(self, tenants: Iterable[TenantConfig], now: float) -> None:
        """Apply a (new) configuration. A tenant that left and has nothing in flight is forgotten."""
        tenants = list(tenants)
        for tenant in tenants:
            account = self.accounts.setdefault(tenant.name, Account(tenant.name))
            account.configure(tenant.limits, now)
        kept = {tenant.name for tenant in tenants}
        for name in [n for n, a in self.accounts.items() if n not in kept and a.concurrency.in_flight == 0]:
            del self.accounts[name]

    def reserve(self, tenant: str, tokens: int, now: float) -> Reservation:
        """Take one request, `tokens` (an estimate) and a place; raises `LimitExceeded` with nothing taken."""
        account = self.accounts[tenant]
        concurrency = account.concurrency
        if not concurrency.take():
            raise LimitExceeded(
                f"Too many requests at once: the limit of {tenant} is {concurrency.limit}.",
                limit="concurrency",
                retry_after=CONCURRENCY_RETRY_AFTER,
            )
        try:
            reserved = _take(account, tokens, now)
        except LimitExceeded:
            concurrency.release()
            raise
        return Reservation(account, reserved)


def _take(account: Account, tokens: int, now: float) -> float:
    """The tokens taken. Requests are taken first, and given back when the tokens are not to be had."""
    requests, budget = account.buckets.get("requests"), account.buckets.get("tokens")
    if requests is not None and (wait := requests.take(1, now)):
        raise _exceeded(account, "requests", wait)
    if budget is None:
        return 0.0
    estimate = budget.clamp(tokens)
    if wait := budget.take(estimate, now):
        if requests is not None:
            requests.settle(1, 0, now)
        raise _exceeded(account, "tokens", wait)
    return estimate


def _exceeded(account: Account, unit: Unit, wait: float) -> LimitExceeded:
    rate = account.limits.requests if unit == "requests" else account.limits.tokens
    written = f"{rate.amount:g} per {rate.period:g} s" if rate else ""
    return LimitExceeded(
        f"{account.tenant} is over its limit of {unit} ({written}). Try again in {wait:.1f} s.",
        limit=unit,
        retry_after=wait,
    )
