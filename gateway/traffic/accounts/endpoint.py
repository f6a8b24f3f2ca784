"""An endpoint with an account. The provider's refusals concern one model of the account, for every tenant."""

from collections.abc import Sequence

from adapters.base import Adapter
from adapters.errors import AccountRefused, CapacityError
from adapters.requests import ModelRequest
from adapters.types import Usage
from gateway.traffic.accounts.account import LITTLE, REQUESTED, ProviderAccount
from gateway.traffic.accounts.quota import ONE, Need
from gateway.traffic.endpoint import Endpoint, RefusalKey, is_callers
from policies.breaker import Breaker


class AccountEndpoint(Endpoint):
    """`hold` reserves a request's part of the quota when the pool has picked the endpoint; `release` ends that as soon
    as the answer begins."""

    __slots__ = ("account", "one_model")

    def __init__(
        self,
        id_: str,
        adapter: Adapter,
        breaker: Breaker,
        account: ProviderAccount,
        address: str = "",
        place: str = "",
        *,
        one_model: bool = False,
    ) -> None:
        """`one_model`: every request is for the model that the endpoint names."""
        super().__init__(id_, adapter, breaker, address=address, place=place)
        self.account = account
        self.one_model = one_model

    # ── the quota of a request, at an endpoint of a pool whose endpoints all have accounts ────────────────

    @staticmethod
    def hold(endpoint: Endpoint, request: ModelRequest, now: float) -> None:
        """Reserve the request's part of the quota."""
        account, model = _of(endpoint, request)
        account.hold(model, Need.of(request), now)

    @staticmethod
    def release(endpoint: Endpoint, request: ModelRequest) -> None:
        """The provider's own count includes the request now, or it was not sent."""
        account, model = _of(endpoint, request)
        account.release(model, Need.of(request))

    @staticmethod
    def sends(endpoint: Endpoint, request: ModelRequest) -> None:
        """The calls of this context are for the request: their answers report the quota of its model."""
        REQUESTED.set(_of(endpoint, request)[1])

    @staticmethod
    def settle(endpoint: Endpoint, request: ModelRequest, usage: Usage, now: float) -> None:
        """Count what an answer has really used."""
        account, model = _of(endpoint, request)
        if account.limits is not None and (quota := account.quota(model)) is not None:
            quota.settle(Need.of(request), usage, now)

    @staticmethod
    def with_room(endpoints: Sequence[Endpoint], request: ModelRequest, now: float) -> list[Endpoint]:
        """The endpoints whose quota suffices for a request. One with little left only if no other has more."""
        need, fitting, rich = Need.of(request), list[Endpoint](), list[Endpoint]()
        for endpoint in endpoints:
            account, model = _of(endpoint, request)
            if not account.wait(model, need, now):
                fitting.append(endpoint)
                if account.share(model, now) >= LITTLE:
                    rich.append(endpoint)
        return rich or fitting

    @staticmethod
    def resting(endpoints: Sequence[Endpoint], request: ModelRequest, now: float) -> tuple[float, str] | None:
        """The shortest wait for a request and its cause, if every endpoint makes it wait; None if one does not."""
        need, waits = Need.of(request), list[tuple[float, str]]()
        for endpoint in endpoints:
            account, model = _of(endpoint, request)
            if not (wait := account.wait(model, need, now)):
                return None
            quota = account.quota(model)
            waits.append((wait, "upstream_quota" if quota is None else quota.cause(now)))
        return min(waits, default=None)

    def share_left(self, model: str, now: float) -> float:
        return self.account.share(self.own_model(model), now)

    def described(self, now: float) -> dict[str, object]:
        """For operators: the pause and the quota of each model, by its name; `*` at an endpoint with one model."""
        return {model or "*": quota.describe(now) for model, quota in self.account.quotas()}

    def own_model(self, model: str) -> str:
        """The name of a model in the account: empty at an endpoint with one model. It never changes while the endpoint
        runs, so what a request holds under it can be released under it."""
        return "" if self.one_model else model

    # ── refusals ──────────────────────────────────────────────────────────────────────────────────────

    def allows(self, subject: RefusalKey, now: float) -> bool:
        return self.breaker.allows(now) and not self.account.wait(self.own_model(subject.model), ONE, now)

    def rests(self, subject: RefusalKey, now: float) -> float:
        return max(self.breaker.rests(now), self.account.wait(self.own_model(subject.model), ONE, now))

    def retry_after(self, subject: RefusalKey, now: float) -> float:
        return max(self.breaker.retry_after(now), self.account.wait(self.own_model(subject.model), ONE, now))

    def next_change(self, now: float) -> float:
        waits = (self.breaker.next_change(now), self.account.next_change(now))
        return min((wait for wait in waits if wait > 0), default=0.0)

    def _judge(self, error: BaseException | None, now: float, subject: RefusalKey, *, was_out: bool) -> None:
        model = self.own_model(subject.model)
        if isinstance(error, CapacityError) and (cause := _cause_of(error)):
            self.breaker.abandoned(now)
            self.account.refused(model, cause, error.retry_after, now)
            return
        if (error is None or is_callers(error)) and (quota := self.account.quota(model)) is not None:
            quota.answered()
        super()._judge(error, now, subject, was_out=was_out)


def _of(endpoint: Endpoint, request: ModelRequest) -> tuple[ProviderAccount, str]:
    assert isinstance(endpoint, AccountEndpoint)
    return endpoint.account, endpoint.own_model(request.model)


def _cause_of(error: CapacityError) -> str:
    """The cause of a pause by a refusal; empty for one that concerns this request alone, or this gateway."""
    if isinstance(error, AccountRefused):
        return "upstream_account" if error.scope == "server" else ""
    if not error.blames_endpoint or error.scope == "tenant":
        return ""
    return "upstream_quota" if error.reason_of_refusal is None else error.reason_of_refusal.cause
