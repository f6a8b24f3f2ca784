"""Any sequence of answers of a provider: what rests, what stays served, and that nothing stays reserved."""

import os
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import (
    AccountRefused,
    AccountsRest,
    BackendError,
    CallerError,
    CapacityError,
    InferenceError,
    TransportError,
    Unavailable,
)
from adapters.fake import FakeAdapter
from adapters.http1.message import Headers
from adapters.requests import ModelRequest
from adapters.wire import quota_headers
from adapters.wire.error_table import ErrorBody, judged
from adapters.wire.quota_headers import ReportedQuota
from config.schema.config import AccountLimitsConfig, BalanceConfig
from gateway.traffic.accounts.account import REQUESTED, ProviderAccount
from gateway.traffic.accounts.endpoint import AccountEndpoint
from gateway.traffic.accounts.quota import LONGEST_REST, Need
from gateway.traffic.accounts.table import PROBED, AccountTable
from gateway.traffic.endpoint import subject_of
from gateway.traffic.pool import Pool
from policies.balancing.pickers import picker
from policies.breaker import Breaker
from tests.support.gateways import chat
from tests.support.pools import FOREVER

KEYS, MODELS = 3, "xyz"


class Event(NamedTuple):
    model: str
    after: float
    kind: str
    retry_after: float | None
    remaining: int
    reset: float
    size: int


KINDS = ["200", "200", "200", "429", "402", "400", "500", "503", "gone"]
EVENTS = st.lists(
    st.builds(
        Event,
        st.sampled_from(MODELS),
        st.floats(0.0, 20.0),
        st.sampled_from(KINDS),
        st.none() | st.floats(0.0, 90.0),
        st.integers(0, 4),
        st.floats(0.0, 60.0),
        st.integers(1, 2000),
    ),
    max_size=40,
)
ERRORS: dict[str, Callable[[float | None], BaseException]] = {
    "429": lambda after: CapacityError("full", retry_after=after, scope="unknown").because("upstream_quota"),
    "402": lambda after: AccountRefused("empty", retry_after=after),
    "503": lambda after: CapacityError("full", retry_after=after),
    "400": lambda after: CallerError("wrong"),
    "500": lambda after: BackendError("broken"),
    "gone": lambda after: GeneratorExit(),
}
CAUSES = {"429": "upstream_quota", "402": "upstream_account", "503": "upstream_overloaded"}


class Provider:
    """Lets a test decide each answer. Its pool has a key in each endpoint, and serves several models."""

    def __init__(self, balance: str) -> None:
        self.now = 1000.0
        self.table = AccountTable(rows=64)
        self.endpoints = [self._endpoint(number) for number in range(KEYS)]
        by = BalanceConfig(by=balance)
        self.pool = Pool(
            "p", [*self.endpoints], picker(by), max_in_flight=100, accounts=True, rng=Random(1), clock=lambda: self.now
        )

    def _endpoint(self, number: int) -> AccountEndpoint:
        account = ProviderAccount(f"p/{number}", self.table, lambda: self.now)
        endpoint = AccountEndpoint(f"p/{number}", FakeAdapter(), Breaker(1000, 10.0), account)
        endpoint.several = True
        return endpoint

    def send(self, event: Event) -> AccountEndpoint | AccountsRest:
        """One request, with the answer of the event."""
        request, call = chat(event.model, max_tokens=event.size), Call(FOREVER, tenant="t")
        endpoint = self.pool.lease(request, call, self.now)
        if endpoint is None:
            resting = AccountEndpoint.resting(self.endpoints, request, self.now)
            assert resting is not None
            return AccountsRest("rests", retry_after=resting[0]).because(resting[1])
        assert isinstance(endpoint, AccountEndpoint)
        self._answer(endpoint, request, call, event)
        return endpoint

    def _answer(self, endpoint: AccountEndpoint, request: ModelRequest, call: Call, event: Event) -> None:
        AccountEndpoint.sends(endpoint, request)
        if event.kind in ("200", "429"):
            endpoint.account.read(headers(event))
        AccountEndpoint.release(endpoint, request)
        error = ERRORS[event.kind](event.retry_after) if event.kind in ERRORS else None
        endpoint.end(error, self.now, subject_of(request, call))

    @property
    def reserved(self) -> float:
        rows = range(self.table.rows)
        return sum(sum(self.table.reserved(row)[1]) for row in rows)


class Failing(FakeAdapter):
    """Answers every request with an error."""

    def __init__(self, error: InferenceError) -> None:
        super().__init__()
        self.error = error

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        raise self.error


def headers(event: Event) -> Headers:
    fields = {"limit": "5", "remaining": str(event.remaining), "reset": f"{event.reset:.3f}s"}
    return Headers({f"x-ratelimit-{name}-requests".encode(): value.encode() for name, value in fields.items()})


@settings(max_examples=150)
@given(EVENTS, st.sampled_from(["quota", "round_robin", "least_request", "prefix_affinity"]))
def test_a_refusal_rests_its_key_and_model_alone_for_its_time(events: list[Event], balance: str) -> None:
    provider = Provider(balance)
    rests: dict[tuple[str, str], tuple[float, str]] = {}
    for event in events:
        provider.now += event.after
        sent = provider.send(event)
        now = provider.now
        mine = {key: rest for key, rest in rests.items() if key[1] == event.model and rest[0] > now}
        if isinstance(sent, AccountsRest):
            quotas = [endpoint.account.quota(event.model) for endpoint in provider.endpoints]
            waits = [quota.wait(Need(1, 1, event.size), now) for quota in quotas if quota is not None]
            assert len(waits) == KEYS
            assert sent.retry_after == pytest.approx(min(waits))
            assert sent.reason_of_refusal is not None
            if len(mine) == KEYS:
                assert sent.reason_of_refusal.cause in {cause for _, cause in mine.values()} | {"upstream_quota"}
        else:
            assert (sent.id, event.model) not in mine  # no key is used while it rests
            if event.kind in CAUSES:
                wait = 0.001 if event.retry_after is None else min(event.retry_after, LONGEST_REST)
                rests[sent.id, event.model] = (now + wait, CAUSES[event.kind])
        assert provider.reserved == 0
        touched = set(rests)
        for endpoint in provider.endpoints:
            assert endpoint.in_flight == 0
            for model in MODELS:
                quota = endpoint.account.quota(model)
                if (endpoint.id, model) not in touched and quota is not None:
                    assert not quota.describe(now)["rest_seconds"]  # no model rests for another's refusal


def test_a_request_that_waits_in_vain_leaves_nothing_reserved() -> None:
    provider = Provider("quota")
    provider.send(Event("x", 0.0, "200", None, 4, 60.0, 1))
    request, call = chat("x"), Call(FOREVER)
    endpoint = provider.pool.lease(request, call, provider.now)
    assert endpoint is not None
    assert provider.reserved >= 0
    provider.pool.give_back(endpoint, request, call, Unavailable("gone"))
    assert provider.reserved == 0
    assert endpoint.in_flight == 0


async def test_tokens_of_requests_that_were_not_delivered_are_given_back() -> None:
    provider = Provider("quota")
    endpoint = provider.endpoints[0]
    provider.pool.endpoints = [endpoint]
    endpoint.account.configure(AccountLimitsConfig.model_validate({"tokens": "5000/hour"}))
    request, call = chat("x", max_tokens=500), Call(FOREVER)
    refused, lost = TransportError("refused"), TransportError("reset")
    refused.delivered = False
    for error, spent in ((refused, False), (CapacityError("full", retry_after=0.0), False), (lost, True)):
        before = endpoint.account.share("x", provider.now)
        endpoint.adapter = Failing(error)
        with pytest.raises(InferenceError):
            await provider.pool.call(request, call)
        assert (endpoint.account.share("x", provider.now) < before) == spent
    before = endpoint.account.share("x", provider.now)
    leased = provider.pool.lease(request, call, provider.now)
    assert leased is endpoint
    provider.pool.give_back(endpoint, request, call, Unavailable("gone"))
    assert endpoint.account.share("x", provider.now) == before


@given(
    st.floats(1, 1e6),
    st.floats(0, 1e6),
    st.floats(0.01, 1e5),
    st.lists(st.integers(1, 50), max_size=20),
    st.floats(0, 100),
)
def test_a_burst_is_admitted_as_far_as_the_reported_quota_suffices(
    limit: float, remaining: float, reset: float, sizes: list[int], after: float
) -> None:
    table, now = AccountTable(rows=8), 5.0
    account = ProviderAccount("a", table, lambda: now)
    REQUESTED.set("m")
    account.refused("m", "upstream_quota", 0.0, now)
    (quota,) = (quota for _, quota in account.quotas())
    quota.report(ReportedQuota("tokens", remaining, limit, reset), now)
    held = 0
    for size in sizes:
        need = Need(1, size, 0)
        if not account.wait("m", need, now):
            assert min(size, limit) <= min(remaining, limit) - held + 1e-6
            account.hold("m", need, now)
            held += size
    later = account.wait("m", Need(1, 1, 0), now)
    assert later <= LONGEST_REST
    for _ in range(len(sizes) + 1):
        account.release("m", Need(1, held, 0))
    now += max(reset, 86400.0) + after
    assert account.share("m", now) == 1.0
    assert not account.wait("m", Need(1, 10**9, 0), now)  # a whole quota suffices for any request


@pytest.fixture
def memory() -> Iterator[int]:
    fd = os.memfd_create("accounts")
    yield fd
    os.close(fd)


def test_processes_share_pauses_quotas_and_reservations(memory: int) -> None:
    now = 7.0
    first, second = (ProviderAccount("a", AccountTable(memory, workers=4, me=me), lambda: now) for me in (0, 2))
    first.refused("m", "upstream_account", 30.0, now)
    assert second.wait("m", Need(), now) == 30.0
    quota = second.quota("m")
    assert quota is not None
    assert quota.cause(now) == "upstream_account"
    assert not second.wait("other", Need(), now)
    quota.report(ReportedQuota("requests", 2, 10, 600.0), now)
    now += 30.0
    second.hold("m", Need(), now)
    second.hold("m", Need(), now)
    assert first.wait("m", Need(), now) > 0
    AccountTable.release(memory, 2, 4)  # that process has ended
    assert not first.wait("m", Need(), now)


def test_a_full_table_gives_the_row_of_an_idle_model_to_another() -> None:
    now = 0.0
    table = AccountTable(rows=PROBED)
    account = ProviderAccount("a", table, lambda: now)
    for number in range(PROBED):
        account.refused(f"m{number}", "upstream_quota", 10.0, now)
    account.refused("late", "upstream_quota", 10.0, now)
    assert account.quota("late") is None  # not observed, and not refused here
    assert not account.wait("late", Need(), now)
    now += 1000.0
    account.refused("late", "upstream_quota", 10.0, now)
    assert account.wait("late", Need(), now) == 10.0
    assert sum(account.quota(f"m{number}") is None for number in range(PROBED)) == 1


def test_limits_of_the_file_follow_a_reload() -> None:
    account = ProviderAccount("a", AccountTable(rows=8), lambda: 3.0)
    account.configure(AccountLimitsConfig.model_validate({"requests": "2/min"}))
    for _ in range(2):
        assert not account.wait("m", Need(), 3.0)
        account.hold("m", Need(), 3.0)
    assert account.wait("m", Need(), 3.0) == pytest.approx(30.0)
    account.configure(AccountLimitsConfig.model_validate({"requests": "10/min"}))
    assert not account.wait("m", Need(), 3.0)
    for _ in range(10):
        account.hold("m", Need(), 3.0)
    account.configure(AccountLimitsConfig.model_validate({"requests": "10/hour"}))
    assert not account.wait("m", Need(), 3.0)
    for _ in range(10):
        account.hold("m", Need(), 3.0)
    assert account.wait("m", Need(), 3.0) == pytest.approx(360.0)  # the period alone has changed
    account.configure(None)
    assert account.share("m", 3.0) == 1.0


def test_changed_limits_apply_to_the_rows_of_earlier_processes(memory: int) -> None:
    for limit, process in ((2, 0), (5, 1), (1, 1)):
        account = ProviderAccount("a", AccountTable(memory, workers=2, me=process), lambda: 3.0)
        account.configure(AccountLimitsConfig.model_validate({"requests": f"{limit}/min"}))
        for _ in range(limit):
            assert not account.wait("m", Need(), 3.0)
            account.hold("m", Need(), 3.0)
        assert account.wait("m", Need(), 3.0) == pytest.approx(60.0 / limit)


def test_a_reload_between_a_request_and_its_end_leaves_nothing_reserved() -> None:
    """A reload may give the pool another model, or take one from it."""
    provider = Provider("quota")
    for several in (False, True):
        for endpoint in provider.endpoints:
            endpoint.several = several
            endpoint.account.configure(AccountLimitsConfig.model_validate({"requests": "10/min"}))
        leased = provider.pool.lease(request := chat("x"), call := Call(FOREVER), provider.now)
        assert leased is not None
        assert provider.reserved > 0
        for endpoint in provider.endpoints:
            endpoint.several = not several
        provider.pool.give_back(leased, request, call, Unavailable("gone"))
        assert provider.reserved == 0


UTC = 1_780_000_000.0
READINGS = [
    ({"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "59", "x-ratelimit-reset-requests": "6m0s"},
     [("requests", 59.0, 60.0, 360.0)]),
    ({"x-ratelimit-remaining-tokens": "14998", "x-ratelimit-reset-tokens": "6ms"}, [("tokens", 14998.0, None, 0.006)]),
    ({"x-ratelimit-remaining-tokens": "17", "x-ratelimit-reset-tokens": "1h2m3.5s"}, [("tokens", 17.0, None, 3723.5)]),
    ({"x-ratelimit-remaining-requests": "4", "x-ratelimit-reset-requests": "12"}, [("requests", 4.0, None, 12.0)]),
    ({"x-ratelimit-limit-requests-day": "100", "x-ratelimit-remaining-requests-day": "9"},
     [("requests", 9.0, 100.0, None)]),
    ({"x-ratelimit-limit-req-minute": "60", "x-ratelimit-remaining-req-minute": "58"},
     [("requests", 58.0, 60.0, None)]),
    ({"anthropic-ratelimit-input-tokens-limit": "1000", "anthropic-ratelimit-input-tokens-remaining": "0",
      "anthropic-ratelimit-input-tokens-reset": "2026-05-28T20:27:40Z"}, [("prompt", 0.0, 1000.0, 60.0)]),
    ({"x-ratelimit-remaining": "3", "x-ratelimit-reset": "1780000030000"}, [("requests", 3.0, None, 30.0)]),
    ({"x-ratelimit-remaining-requests": "nan", "x-ratelimit-remaining-tokens": "many"}, []),
    ({"x-ratelimit-remaining-requests": "5", "x-ratelimit-reset-requests": "soon"}, [("requests", 5.0, None, None)]),
    ({"content-type": "application/json"}, []),
]  # fmt: skip


@pytest.mark.parametrize(("reported", "expected"), READINGS)
def test_quotas_are_read_from_the_headers_of_each_provider(
    reported: dict[str, str], expected: list[tuple[str, float, float | None, float | None]]
) -> None:
    assert list(quota_headers.read(reported, UTC)) == [ReportedQuota(*each) for each in expected]  # type: ignore[arg-type]


@given(st.dictionaries(st.sampled_from([name for names in quota_headers._NAMES for name in names[:3]]), st.text()))
def test_no_header_breaks_the_reading(reported: dict[str, str]) -> None:
    for quota in quota_headers.read(reported, UTC):
        assert quota.remaining >= 0
        assert quota.reset is None or quota.reset >= 0


def test_an_error_of_the_gateway_rests_no_account() -> None:
    provider = Provider("quota")
    endpoint, request = provider.endpoints[0], chat("x")
    for error in (
        Unavailable("full"),
        CallerError("wrong"),
        InferenceError("odd"),
        AccountRefused("small", scope="tenant"),
        *(
            judged(429, ErrorBody(f"Request too large for gpt-4o {text}", "tokens", None, "rate_limit_exceeded"), 7.0)
            for text in ("on tokens per min (TPM): Limit 30000, Requested 40000.", "on tokens per day. See billing.")
        ),
    ):
        endpoint.begin(provider.now)
        endpoint.end(error, provider.now, subject_of(request, Call(FOREVER)))
        assert endpoint.allows(subject_of(request, Call(FOREVER)), provider.now)
        assert not isinstance(error, AccountRefused) or error.elsewhere_only  # not sent to the same account again
