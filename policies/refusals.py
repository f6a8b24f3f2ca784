"""Refusals that concern less than an endpoint: one tenant's limit, or one model's.

A hosted API limits each model, and some limit each caller: an endpoint that refuses one request may answer all others.
Each refused (model, tenant), and each refused model, has its own breaker at the endpoint. A refusal widens only with
evidence: a second tenant refuses the model for all, a second model so refused counts against the endpoint.
"""

from collections.abc import Iterator
from typing import NamedTuple

from policies.breaker import LONGEST_REST, Breaker

MOST = 1024
"""Maximum of entries of one endpoint; the one with the oldest refusal is dropped first."""
WITNESS = LONGEST_REST
"""Seconds for which a refusal confirms another one, unless its own model and tenant were answered since."""

Key = tuple[str, str | None]
"""A model and a tenant; None for all tenants."""


class _Refused(NamedTuple):
    breaker: Breaker
    at: float
    tenant_only: bool
    """Whether the endpoint reported that the refusal concerns this tenant only."""


class Refusals:
    """The refusals of one endpoint. Models and tenants without a current refusal have no entry.

    The model is empty at an endpoint with a single model, whose refusals of the model are the endpoint's.
    """

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held: dict[Key, _Refused] = {}  # usually empty: callers check that before a call

    def refused(
        self, model: str, tenant: str, retry_after: float | None, now: float, like: Breaker, scope: str
    ) -> bool:
        """Record a refusal, with the scope that the endpoint reports: `tenant`, `server` (any tenant) or `unknown`.

        Returns True if it counts against the endpoint. `like` is the endpoint's breaker.
        """
        self._forget(now)
        if scope != "server":
            others = [name for (named, name), _ in self._lately(now) if named == model and name not in (tenant, None)]
            self._hold((model, tenant), retry_after, now, like, tenant_only=scope == "tenant")
            if scope == "tenant" or not others:
                return False
        if not model:
            return True
        self._hold((model, None), retry_after, now, like)
        return any(named != model and name is None for (named, name), _ in self._lately(now))

    def _lately(self, now: float) -> Iterator[tuple[Key, _Refused]]:
        items = self.held.items()
        return ((key, one) for key, one in items if not one.tenant_only and now - one.at < WITNESS)

    def _hold(
        self, key: Key, retry_after: float | None, now: float, like: Breaker, *, tenant_only: bool = False
    ) -> None:
        before = self.held.pop(key, None)
        if before is None and len(self.held) >= MOST:
            del self.held[next(iter(self.held))]
        breaker = Breaker(like.failures, like.open_for) if before is None else before.breaker
        breaker.failure(now)
        if retry_after is not None:
            breaker.rest(retry_after, now)
        self.held[key] = _Refused(breaker, now, tenant_only)

    def _forget(self, now: float) -> None:
        """Drop the oldest entries that neither stop a request nor confirm a refusal any more."""
        while self.held:
            oldest = next(iter(self.held))
            one = self.held[oldest]
            if now - one.at < WITNESS or one.breaker.retry_after(now) > 0:
                break
            del self.held[oldest]

    def _of(self, model: str, tenant: str) -> Iterator[Breaker]:
        """The breakers that a request passes."""
        for key in ((model, tenant), (model, None)):
            if (one := self.held.get(key)) is not None:
                yield one.breaker

    def begin(self, model: str, tenant: str, now: float) -> None:
        """Record the start of a request."""
        for breaker in self._of(model, tenant):
            breaker.begin(now)

    def answered(self, model: str, tenant: str, now: float) -> None:
        """Record that the endpoint accepts requests of the tenant for the model again."""
        self.held.pop((model, tenant), None)
        if (whole := self.held.get((model, None))) is not None:
            whole.breaker.success(now)
            if whole.breaker.retry_after(now) == 0.0 and not whole.breaker.is_open:
                del self.held[model, None]
        self._forget(now)

    def abandoned(self, model: str, tenant: str, now: float) -> None:
        """Record a request without a result."""
        for breaker in self._of(model, tenant):
            breaker.abandoned(now)

    def allows(self, model: str, tenant: str, now: float) -> bool:
        """Whether a request may be sent."""
        return all(breaker.allows(now) for breaker in self._of(model, tenant))

    def rests(self, model: str, tenant: str, now: float) -> float:
        """Seconds of the pause that the endpoint requires of such requests; 0 for none."""
        return max((breaker.rests(now) for breaker in self._of(model, tenant)), default=0.0)

    def retry_after(self, model: str, tenant: str, now: float) -> float:
        """Seconds until `allows` may return true; 0 if it does now."""
        return max((breaker.retry_after(now) for breaker in self._of(model, tenant)), default=0.0)

    def next_change(self, now: float) -> float:
        """Seconds until time alone changes the result of `allows` for any request; 0 if it changes nothing."""
        waits = (one.breaker.next_change(now) for one in self.held.values())
        return min((wait for wait in waits if wait > 0), default=0.0)
