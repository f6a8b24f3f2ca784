"""One account at a provider. Each model that it serves has a quota and pauses of its own."""

import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from math import inf

from adapters.http1.message import Headers
from adapters.wire import quota_headers
from config.schema.config import AccountLimitsConfig
from gateway.traffic.accounts.quota import ONE, Need, Quota
from gateway.traffic.accounts.table import AccountTable, key_of

LITTLE = 0.1
"""An account with less than this share of its quota serves a request only if no other has more."""
MOST_MODELS = 1024
"""The most models of an account that this process remembers."""

REQUESTED: ContextVar[str | None] = ContextVar("requested", default=None)
"""The model of the request that is sent in this context; None for a health check, whose answer reports no quota."""


class ProviderAccount:
    """`hold` each request, then `release` it when its answer begins or it has failed."""

    def __init__(self, name: str, table: AccountTable, clock: Callable[[], float]) -> None:
        """`name` is the same in all processes of the gateway."""
        self.name = name
        self.limits: AccountLimitsConfig | None = None
        self._table = table
        self._clock = clock
        self._quotas: dict[str, Quota] = {}

    def configure(self, limits: AccountLimitsConfig | None) -> None:
        """Apply the configured limits."""
        if limits != self.limits:
            self.limits = limits
            now = self._clock()
            for quota in self._quotas.values():
                quota.configure(limits, now)

    def hold(self, model: str, need: Need, now: float) -> None:
        """Reserve what a request needs."""
        quota = self._find(model) if self.limits is None else self._claim(model, now)
        if quota is not None:
            quota.hold(need, now)

    def release(self, model: str, need: Need) -> None:
        """Release it."""
        if (quota := self._find(model)) is not None:
            quota.release(need)

    def read(self, headers: Headers) -> None:
        """Take over the quota that the head of an answer reports."""
        if (model := REQUESTED.get()) is None:
            return
        scarcest: dict[str, quota_headers.ReportedQuota] = {}
        for each in quota_headers.read(headers, time.time()):
            other = scarcest.get(each.unit)
            if other is None or each.remaining < other.remaining:
                scarcest[each.unit] = each
        if scarcest and (quota := self._claim(model, now := self._clock())) is not None:
            for each in scarcest.values():
                quota.report(each, now)

    def refused(self, model: str, cause: str, retry_after: float | None, now: float) -> None:
        """The provider refuses requests for a model: it rests here, and nothing else does."""
        if (quota := self._claim(model, now)) is not None:
            quota.refused(cause, retry_after, now)

    def quota(self, model: str) -> Quota | None:
        """The quota of a model; None if nothing is known of it."""
        return self._find(model)

    def wait(self, model: str, need: Need, now: float) -> float:
        """Seconds until such a request may be sent; 0 if it may now."""
        return 0.0 if (quota := self._find(model)) is None else quota.wait(need, now)

    def share(self, model: str, now: float) -> float:
        """The share that is left of the model's scarcest quota; 1 if none is known."""
        return 1.0 if (quota := self._find(model)) is None else quota.share(now)

    def next_change(self, now: float) -> float:
        """Seconds until time alone lets a request for some model pass; 0 if it changes nothing."""
        waits = [wait for _, quota in self.quotas() if 0 < (wait := quota.wait(ONE, now)) < inf]
        return min(waits, default=0.0)

    def quotas(self) -> Iterator[tuple[str, Quota]]:
        """The quotas of the models that this process has requested."""
        return ((model, quota) for model in list(self._quotas) if (quota := self._find(model)) is not None)

    def _find(self, model: str) -> Quota | None:
        name = f"{self.name}\0{model}"
        quota = self._quotas.get(model)
        if quota is not None and quota.key == key_of(name):
            return quota
        return self._remember(model, self._table.find(name))

    def _claim(self, model: str, now: float) -> Quota | None:
        if (quota := self._find(model)) is not None:
            return quota
        row = self._table.claim(f"{self.name}\0{model}", now, lambda row: Quota(self._table, row).is_idle(now))
        return self._remember(model, row)

    def _remember(self, model: str, row: int | None) -> Quota | None:
        if row is None:
            self._quotas.pop(model, None)
            return None
        if len(self._quotas) >= MOST_MODELS:
            del self._quotas[next(iter(self._quotas))]
        quota = self._quotas[model] = Quota(self._table, row)
        quota.configure(self.limits, self._clock())  # the row may be older than the limits
        return quota
