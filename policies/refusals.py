"""Refusals that may be one tenant's own: a 429 says that somebody asked too much, and not that the endpoint is full.

Each tenant that an endpoint refused has a breaker there of its own, which opens and rests as the endpoint's does, for
that tenant alone. A refusal whose scope is not known counts against the endpoint once a second tenant is refused too.
"""

from typing import NamedTuple

from policies.breaker import LONGEST_REST, Breaker

MOST = 1024
"""Tenants remembered at one endpoint; the one refused longest ago is forgotten first."""
WITNESS = LONGEST_REST
"""Seconds for which a refusal bears out that of another tenant, unless its tenant was answered since."""


class _Refused(NamedTuple):
    breaker: Breaker
    at: float
    known: bool
    """It was said to be this tenant's own."""


class Refusals:
    """Of one endpoint, by tenant. Tenants that it never refused, or answered since, cost nothing."""

    __slots__ = ("tenants",)

    def __init__(self) -> None:
        self.tenants: dict[str, _Refused] = {}  # empty as a rule: callers check that before they call

    def refused(self, tenant: str, retry_after: float | None, now: float, like: Breaker, *, known: bool) -> bool:
        """The endpoint refused the tenant. `known`: it said that this is the tenant's own. True when the endpoint is
        to blame: another tenant was refused lately, too, and nobody knows for what. `like` is the endpoint's breaker.
        """
        before = self.tenants.pop(tenant, None)
        if before is None and len(self.tenants) >= MOST:
            del self.tenants[next(iter(self.tenants))]
        breaker = Breaker(like.failures, like.open_for) if before is None else before.breaker
        breaker.failure(now)
        if retry_after is not None:
            breaker.rest(retry_after, now)
        others = (one for one in self.tenants.values() if not one.known and now - one.at < WITNESS)
        blamed = not known and any(others)
        self.tenants[tenant] = _Refused(breaker, now, known)
        return blamed

    def begin(self, tenant: str, now: float) -> None:
        """A request of the tenant was let through."""
        if (one := self.tenants.get(tenant)) is not None:
            one.breaker.begin(now)

    def answered(self, tenant: str) -> None:
        """The endpoint takes the tenant's requests again."""
        if self.tenants:
            self.tenants.pop(tenant, None)

    def abandoned(self, tenant: str, now: float) -> None:
        """A request of the tenant ended with no verdict."""
        if (one := self.tenants.get(tenant)) is not None:
            one.breaker.abandoned(now)

    def allows(self, tenant: str, now: float) -> bool:
        """Whether a request of the tenant may be sent."""
        return not self.tenants or (one := self.tenants.get(tenant)) is None or one.breaker.allows(now)

    def rests(self, tenant: str, now: float) -> float:
        """Seconds for which the endpoint asked to be left alone by the tenant; 0 when it does not."""
        one = self.tenants.get(tenant)
        return 0.0 if one is None else one.breaker.rests(now)

    def retry_after(self, tenant: str, now: float) -> float:
        """Seconds until `allows` may say yes; 0 when it does."""
        one = self.tenants.get(tenant)
        return 0.0 if one is None else one.breaker.retry_after(now)

    def next_change(self, now: float) -> float:
        """Seconds until time alone changes what `allows` says of any tenant; 0 when it changes nothing."""
        waits = (one.breaker.next_change(now) for one in self.tenants.values())
        return min((wait for wait in waits if wait > 0), default=0.0)
