"""Rejections that may concern only one tenant: a 429 may mean that a tenant exceeds its limit, not that the endpoint is
full.

Each rejected tenant has its own breaker at the endpoint, which works as the endpoint's breaker, for that tenant alone.
A rejection of unknown scope counts against the endpoint if a second tenant is rejected too.
"""

from typing import NamedTuple

from policies.breaker import LONGEST_REST, Breaker

MOST = 1024
"""Maximum of rejected tenants at one endpoint; the one with the oldest rejection is dropped first."""
WITNESS = LONGEST_REST
"""Seconds for which a rejection confirms that of another tenant, unless its own tenant was answered since."""


class _Refused(NamedTuple):
    breaker: Breaker
    at: float
    tenant_only: bool
    """Whether the endpoint reported that the rejection concerns this tenant only."""


class Refusals:
    """The rejections of one endpoint by tenant. Tenants without a current rejection have no entry."""

    __slots__ = ("tenants",)

    def __init__(self) -> None:
        self.tenants: dict[str, _Refused] = {}  # usually empty: callers check that before a call

    def refused(self, tenant: str, retry_after: float | None, now: float, like: Breaker, *, tenant_only: bool) -> bool:
        """Record a rejection. `tenant_only`: the endpoint reported that it concerns this tenant only.

        Returns True if it counts against the endpoint: another tenant was rejected recently too, with unknown scope.
        `like` is the endpoint's breaker.
        """
        before = self.tenants.pop(tenant, None)
        if before is None and len(self.tenants) >= MOST:
            del self.tenants[next(iter(self.tenants))]
        breaker = Breaker(like.failures, like.open_for) if before is None else before.breaker
        breaker.failure(now)
        if retry_after is not None:
            breaker.rest(retry_after, now)
        others = (one for one in self.tenants.values() if not one.tenant_only and now - one.at < WITNESS)
        blamed = not tenant_only and any(others)
        self.tenants[tenant] = _Refused(breaker, now, tenant_only)
        return blamed

    def begin(self, tenant: str, now: float) -> None:
        """Record the start of a request of the tenant."""
        if (one := self.tenants.get(tenant)) is not None:
            one.breaker.begin(now)

    def answered(self, tenant: str) -> None:
        """Record that the endpoint accepts the tenant's requests again."""
        if self.tenants:
            self.tenants.pop(tenant, None)

    def abandoned(self, tenant: str, now: float) -> None:
        """Record a request of the tenant without a result."""
        if (one := self.tenants.get(tenant)) is not None:
            one.breaker.abandoned(now)

    def allows(self, tenant: str, now: float) -> bool:
        """Whether a request of the tenant may be sent."""
        return not self.tenants or (one := self.tenants.get(tenant)) is None or one.breaker.allows(now)

    def rests(self, tenant: str, now: float) -> float:
        """Seconds of the pause that the endpoint requires of the tenant; 0 for none."""
        one = self.tenants.get(tenant)
        return 0.0 if one is None else one.breaker.rests(now)

    def retry_after(self, tenant: str, now: float) -> float:
        """Seconds until `allows` may return true; 0 if it does now."""
        one = self.tenants.get(tenant)
        return 0.0 if one is None else one.breaker.retry_after(now)

    def next_change(self, now: float) -> float:
        """Seconds until time alone changes the result of `allows` for any tenant; 0 if it changes nothing."""
        waits = (one.breaker.next_change(now) for one in self.tenants.values())
        return min((wait for wait in waits if wait > 0), default=0.0)
