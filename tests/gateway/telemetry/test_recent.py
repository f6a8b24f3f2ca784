"""The figures of the last seconds and minutes: every ended request counts once, whatever refused it."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import ClientGone, CredentialError, InferenceError, LimitExceeded, TransportError, Unavailable
from adapters.reason import reason
from adapters.types import Usage
from config.schema.money import Money
from gateway.telemetry.figures import MOST_NAMES, OTHERS, Figures, FigureSet, quantiles, range_of
from gateway.telemetry.recent import MINUTE, WINDOW, RecentTraffic
from gateway.telemetry.record import Record

NOW = 1_000_000.0


def record(at: float = NOW, model: str = "chat", error: InferenceError | None = None, **fields: Any) -> Record:
    """A request that took two seconds, with its first chunk after one."""
    one = Record("id", "chat", "client", 10.0)
    one.tenant, one.model, one.pool, one.ended, one.time, one.error = "acme", model, "main", 12.0, at, error
    if error is None:
        one.trace.first_chunk = 11.0
    for name, value in fields.items():
        setattr(one, name, value)
    return one


def window(recent: RecentTraffic, now: float = NOW + 3) -> FigureSet:
    return FigureSet.read(recent.window(now))


def test_refusals_without_a_pool_are_counted_by_cause() -> None:
    recent = RecentTraffic()
    recent.count(record(usage=Usage(5, 2), cost=Money(7, "usd")), "acme")
    recent.count(record(error=Unavailable("no endpoint"), status=503, pool=""), "acme")
    limited = LimitExceeded("over", limit="1/min", retry_after=1.0)
    recent.count(record(error=limited, status=429, pool="", reason=reason("limit", unit="requests", per="key")), "acme")
    recent.count(record(error=CredentialError("wrong key"), status=401, pool="", tenant="", model=""), "")
    recent.refused(431, "headers_too_large", NOW)
    figures = window(recent)
    assert (figures.all.requests, figures.all.failures, figures.all.refused) == (5, 1, 3)
    assert (figures.all.tokens, figures.all.picos) == (7, {"usd": 7})
    assert {name: each.requests for name, each in figures.named["pools"].items()} == {"main": 1, "": 4}
    assert {name: each.refused for name, each in figures.named["tenants"].items()} == {"acme": 1, "": 2}
    assert sorted(cause.split()[0] for cause in figures.causes) == ["401", "429", "431", "503"]
    assert "429 rate_limit_exceeded: limit of requests per key" in figures.causes


def test_a_cause_distinguishes_refusals_of_one_code() -> None:
    recent = RecentTraffic()
    for cause in ("upstream_quota", "upstream_quota", "pool_full"):
        error = Unavailable("full", code="overloaded").because(cause)
        recent.count(record(error=error, reason=error.reason_of_refusal, status=503), "acme")
    assert window(recent).causes == {"503 overloaded: upstream_quota": 2, "503 overloaded: pool_full": 1}


def test_a_client_that_left_is_neither_a_failure_nor_a_refusal() -> None:
    recent = RecentTraffic()
    recent.count(record(error=ClientGone("gone"), status=499), "acme")
    recent.count(record(error=TransportError("reset"), status=502), "acme")
    assert (window(recent).all.failures, window(recent).all.refused) == (1, 0)


@given(st.lists(st.floats(0, 3 * MINUTE), min_size=1, max_size=60), st.data())
def test_each_request_is_in_one_minute(offsets: list[float], data: st.DataObject) -> None:
    begin, recent, seen = NOW - NOW % MINUTE, RecentTraffic(), dict[str, dict[str, Any]]()
    for offset in sorted(offsets):
        recent.count(record(begin + offset), "acme")
        seen |= recent.minutes(begin + offset) if data.draw(st.booleans()) else {}
    seen |= recent.minutes(begin + 4 * MINUTE + 30)
    sums = {int(minute): FigureSet.read(each).all.requests for minute, each in seen.items()}
    assert sum(sums.values()) == len(offsets)
    first = int(begin) // MINUTE
    for minute in range(3):
        expected = sum(first + minute == int(begin + offset) // MINUTE for offset in offsets)
        assert sums.get(first + minute, 0) == expected


def test_old_seconds_leave_the_window_and_nothing_grows() -> None:
    recent = RecentTraffic()
    for second in range(3600):
        recent.count(record(NOW + second), "acme")
    assert window(recent, NOW + 3600).all.requests == WINDOW
    assert len(recent._seconds) < 20
    assert len(recent._minutes) < 10


@pytest.mark.parametrize("jump", [-86_400, 86_400])
def test_a_clock_that_jumps_leaves_no_second_behind(jump: float) -> None:
    recent = RecentTraffic()
    for second in range(100):
        recent.count(record(NOW + second), "acme")
    for second in range(100):
        recent.count(record(NOW + jump + second), "acme")
    assert window(recent, NOW + jump + 100).all.requests == WINDOW
    assert len(recent._seconds) < 20


def test_names_are_bounded_and_the_sums_are_complete() -> None:
    recent = RecentTraffic()
    for number in range(1000):
        recent.count(record(model=f"model-{number}"), f"tenant-{number}")
    figures = window(recent)
    for named in figures.named.values():
        assert len(named) <= MOST_NAMES + 1
        assert sum(each.requests for each in named.values()) == figures.all.requests == 1000
    assert OTHERS in figures.named["models"]
    figures.fold(8)
    for named in figures.named.values():
        assert len(named) <= 9
        assert sum(each.requests for each in named.values()) == 1000


@given(
    st.lists(st.floats(0.0002, 600), min_size=1, max_size=200),
    st.sampled_from([(0.5,), (0.5, 0.95), (0.01, 0.01, 1.0)]),
)
def test_quantiles_are_right_to_five_percent(times: list[float], shares: tuple[float, ...]) -> None:
    figures = Figures()
    for time in times:
        figures.durations[range_of(time)] += 1
    for share, shown in zip(shares, quantiles(Figures.read(figures.describe()).durations, shares), strict=True):
        exact = sorted(times)[math.ceil(share * len(times)) - 1]
        assert shown is not None
        assert exact / 1.06 < shown < exact * 1.06
    assert quantiles({}, shares) == [None] * len(shares)


def test_sums_of_two_processes_add_up() -> None:
    one, two = RecentTraffic(), RecentTraffic()
    one.count(record(cost=Money(3, "usd")), "acme")
    two.count(record(cost=Money(4, "usd")), "acme")
    two.count(record(model="other", error=TransportError("reset"), status=502), "beta")
    total = FigureSet.read(one.window(NOW + 3))
    total.add(FigureSet.read(two.window(NOW + 3)))
    assert (total.all.requests, total.all.failures, total.all.picos) == (3, 1, {"usd": 7})
    assert {name: each.requests for name, each in total.named["models"].items()} == {"chat": 2, "other": 1}
    assert quantiles(total.all.durations, (0.5,)) == [pytest.approx(2.0, rel=0.05)]
