"""Searches of stored requests equal a filter over all of them, in any pages, on either database."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.features.journal.lines import DAY_MICROS, HOUR_MICROS, LABELS, NUMBERS, RequestLine, begin_of, day_of
from gateway.features.requests import search
from gateway.features.requests.days import RequestDays, open_days
from gateway.features.requests.search import LabelTest, RequestQuery
from gateway.features.requests.store import RequestStore
from tests.support.stored_requests import line, waiting

NOVEMBER = begin_of("2026-11-01")
END = NOVEMBER + 40 * DAY_MICROS


lines = st.builds(
    line,
    at=st.builds(
        lambda day, hour, micro: NOVEMBER + day * DAY_MICROS + hour * HOUR_MICROS + micro,
        st.integers(0, 2),
        st.sampled_from([0, 1, 23]),
        st.integers(0, 5),
    ),
    id=st.sampled_from(["r1", "r2", "a/b?c", "ü"]),
    trace=st.sampled_from(["", "ab" * 16]),
    tenant=st.sampled_from(["acme", "beta"]),
    model=st.sampled_from(["m", "n", ""]),
    key=st.sampled_from(["k", "l"]),
    currency=st.sampled_from(["usd", "usd", ""]),
    status=st.sampled_from([200, 404, 429, 502, 503]),
    error=st.sampled_from(["", "capacity", "backend"]),
    picos=st.integers(0, 2**62),
    user=st.sampled_from(["", "zoë", "current_user"]),
)
tests = st.lists(
    st.one_of(
        st.builds(LabelTest, st.just("tenant"), st.sampled_from(["acme", "beta", "none"]), st.none()),
        st.builds(LabelTest, st.just("model"), st.sampled_from(["m", "n"]), st.none()),
        st.builds(LabelTest, st.just("key"), st.sampled_from(["k", "l"]), st.none()),
        st.just(LabelTest("error", None)),
        st.just(LabelTest("code", "")),
        st.just(LabelTest("status", 400, 499)),
        st.just(LabelTest("status", 500, 599)),
        st.just(LabelTest("status", 429)),
    ),
    max_size=3,
).map(tuple)
queries = st.builds(
    RequestQuery,
    begin=st.integers(0, 3 * 24).map(lambda hours: NOVEMBER + hours * HOUR_MICROS + 2),
    end=st.integers(0, 3 * 24).map(lambda hours: NOVEMBER + hours * HOUR_MICROS + 4),
    labels=tests,
    id=st.sampled_from([None, None, "r1", "a/b?c"]),
    trace=st.sampled_from([None, None, "ab" * 16]),
    user=st.sampled_from([None, None, "zoë", "current_user", "nobody"]),
    after=st.none(),
    limit=st.integers(1, 7),
)


def matches(query: RequestQuery, one: RequestLine, *, hours: bool = False) -> bool:
    """Whether a search has a record; with `hours`, whether its totals have it."""
    for label, low, high in query.labels:
        value = getattr(one, label)
        if not (value != "" if low is None else value == low if high is None else low <= value <= high):
            return False
    if query.id not in (None, one.id) or query.trace not in (None, one.trace) or query.user not in (None, one.user):
        return False
    if hours:
        return query.begin // HOUR_MICROS <= one.at // HOUR_MICROS <= (query.end - 1) // HOUR_MICROS
    return query.begin <= one.at < query.end


def paged(store: RequestStore, query: RequestQuery) -> list[dict[str, Any]]:
    """All pages of a search."""
    rows: list[dict[str, Any]] = []
    while page := store.search(query):
        assert len(page) <= query.limit
        rows += page
        query = query._replace(after=(page[-1]["at"], page[-1]["number"]))
    return rows


def open_store(database: str, folder: Path) -> RequestStore:
    return RequestStore(open_days(database, folder))


def drop_all(days: RequestDays) -> None:
    for day in days.sizes():
        days.drop(day)


@pytest.fixture(params=["cheap", "costly"])
def strategies(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Bounds under which each of the three ways of a search is used."""

    def bound(gathered: int) -> None:
        monkeypatch.setattr(search, "_MOST_GATHERED", gathered)
        monkeypatch.setattr(search, "_MOST_MERGED", 200 if request.param == "cheap" else 1)

    return bound


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stored=st.lists(lines, max_size=25), query=queries, gathered=st.sampled_from([0, 5, 5000]))
def test_pages_are_a_filter_over_all_requests(
    any_database: str,
    tmp_path: Path,
    strategies: Callable[[int], None],
    stored: list[RequestLine],
    query: RequestQuery,
    gathered: int,
) -> None:
    strategies(gathered)
    store = open_store(any_database, tmp_path / "days")
    drop_all(store.days)
    store.write("s", waiting(stored), "2026-01-01")
    rows = paged(store, query) if query.begin < query.end else []
    expected = [one for one in stored if matches(query, one)] if query.begin < query.end else []
    assert [row["at"] for row in rows] == sorted((one.at for one in expected), reverse=True)
    assert len({(row["at"], row["number"]) for row in rows}) == len(rows)
    plain = sorted((one.at, one.id, *one.labels, one.picos, *one.usage) for one in expected)
    assert sorted((row["at"], row["id"], *[row[n] for n in LABELS], row["picos"], *[row[n] for n in NUMBERS])
                  for row in rows) == plain  # fmt: skip
    if query.begin < query.end:
        totals = sums_of([one for one in stored if matches(query, one, hours=True)])
        assert store.totals(query) == totals
        forget_totals(store.days)
        earlier = open_store(any_database, tmp_path / "days")
        assert earlier.totals(query) == totals
        earlier.close()
    store.close()


def sums_of(requests: list[RequestLine]) -> list[dict[str, Any]]:
    """The totals of requests by currency."""
    totals = []
    for currency in sorted({one.currency for one in requests}):
        group = [one for one in requests if one.currency == currency]
        usage = {name: sum(one.usage[at] for one in group) for at, name in enumerate(NUMBERS)}
        made = {"currency": currency, "requests": len(group), "picos": sum(one.picos for one in group)}
        totals.append({**made, **usage})
    return totals


def forget_totals(days: RequestDays) -> None:
    """Remove the tables that an earlier release did not have."""
    for number, day in enumerate(days.sizes()):
        with days.writing(day) as (connection, _):
            if connection.dialect.name == "sqlite":
                connection.exec_driver_sql("DROP TABLE request_totals")
            elif number == 0:
                connection.exec_driver_sql("DROP TABLE request_totals CASCADE")


def test_days_without_users_are_completed(any_database: str, tmp_path: Path) -> None:
    """An earlier release wrote the days."""
    days = [NOVEMBER, NOVEMBER + DAY_MICROS]
    store = open_store(any_database, tmp_path / "days")
    store.write("s", waiting([line(at, id="old") for at in days]), "2026-01-01")
    for number, day in enumerate(store.days.sizes()):
        with store.days.writing(day) as (connection, _):
            if connection.dialect.name == "sqlite" or number == 0:  # the partitions of Postgres follow their parent
                connection.exec_driver_sql("DROP INDEX request_rows_user")
                connection.exec_driver_sql('ALTER TABLE request_rows DROP COLUMN "user"')
    store.close()
    later = open_store(any_database, tmp_path / "days")
    assert [row["user"] for row in later.search(RequestQuery(0, END))] == ["", ""]
    later.write("t", waiting([line(at, id="new", user="zoë") for at in days]), "2026-01-01")
    assert [row["id"] for row in later.search(RequestQuery(0, END, user="zoë"))] == ["new", "new"]
    later.close()


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stored=st.lists(lines, max_size=25))
def test_a_user_is_taken_out_of_the_records_of_one_tenant(
    any_database: str, tmp_path: Path, stored: list[RequestLine]
) -> None:
    store = open_store(any_database, tmp_path / "days")
    drop_all(store.days)
    store.write("s", waiting(stored), "2026-01-01")
    own = sum((one.tenant, one.user) == ("acme", "zoë") for one in stored)
    assert store.forget_user("acme", "zoë", only_count=True) == own
    assert store.forget_user("acme", "zoë") == own
    assert store.forget_user("acme", "zoë") == 0
    left = sorted((row["at"], row["tenant"], row["user"]) for row in paged(store, RequestQuery(0, END)))
    assert left == sorted(
        (one.at, one.tenant, "" if (one.tenant, one.user) == ("acme", "zoë") else one.user) for one in stored
    )
    store.close()


def test_a_day_is_dropped_at_once(any_database: str, tmp_path: Path) -> None:
    store = open_store(any_database, tmp_path / "days")
    many = [line(NOVEMBER + day * DAY_MICROS + n, id=f"{day}-{n}") for day in range(3) for n in range(4)]
    assert store.write("s", waiting(many), "2026-11-02") == 4
    assert list(store.days.sizes()) == ["2026-11-03", "2026-11-02"]
    assert all(size > 0 for size in store.days.sizes().values())
    store.days.drop("2026-11-02")
    assert {row["id"][0] for row in paged(store, RequestQuery(0, END))} == {"2"}
    assert store.write("t", waiting(many), "2026-11-02") == 4  # a late gateway
    assert [row["requests"] for row in store.totals(RequestQuery(0, END))] == [12]
    drop_all(store.days)
    assert store.search(RequestQuery(0, END)) == []
    store.close()


def test_a_frame_is_imported_once(any_database: str, tmp_path: Path) -> None:
    """Two writers of one journal, and a writer whose last commit seemed to fail."""
    one, two = (open_store(any_database, tmp_path / "days") for _ in range(2))
    lines = waiting([line(id="a"), line(id="b"), line(NOVEMBER + DAY_MICROS, id="c")])
    one.write("s", lines[:1], "2026-01-01")
    two.write("s", lines, "2026-01-01")
    one.write("s", lines, "2026-01-01")
    assert sorted(row["id"] for row in paged(two, RequestQuery(0, END))) == ["a", "b", "c"]
    assert [row["requests"] for row in two.totals(RequestQuery(0, END))] == [3]
    one.close()
    two.close()


def test_days_have_utc_bounds() -> None:
    assert day_of(NOVEMBER - 1) == "2026-10-31"
    assert day_of(NOVEMBER) == "2026-11-01"
    assert day_of(begin_of("2026-12-01") - 1) == "2026-11-30"
    assert day_of(2**62) == "9999-12-31"
    assert day_of(-5) == "1970-01-01"
