"""Overviews: the same sums from hours, from summed days and from roll-ups, and a forecast by its stated method."""

from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, update

from config.schema.money import PICOS
from gateway.features.usage.labels import HOUR, UsageLabels, UsageRow
from gateway.features.usage.overview import OverviewQuery
from gateway.features.usage.report import Label
from gateway.features.usage.rows import hour_values
from gateway.features.usage.schema import days, hours, summed, totals
from gateway.features.usage.store import UsageStore, write_hours
from tests.support.gateways import PEPPER

TODAY = date(2026, 11, 20)
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp()
FIRST = date(2026, 10, 1)
Use = tuple[int, str, str, str, str, int]
"""The day since `FIRST`, the tenant, the team, the model, the currency and the amount."""
uses = st.lists(
    st.tuples(
        st.integers(0, (TODAY - FIRST).days), st.sampled_from("AB"), st.sampled_from(["", "t"]),
        st.sampled_from("mn"), st.sampled_from(["usd", "eur", ""]), st.integers(1, 2**62 - 1),
    ),
    min_size=1, max_size=30,
)  # fmt: skip


def stored(store: UsageStore, used: list[Use]) -> None:
    rows = []
    for slot, (offset, tenant, team, model, currency, picos) in enumerate(used):
        hour = int(datetime.combine(FIRST, datetime.min.time(), UTC).timestamp()) // HOUR + offset * 24 + slot % 24
        labels = UsageLabels(tenant, f"key-{tenant}", model, "", currency, team)
        counters = (picos if currency else 0, 1, slot % 2, 3, 2, 0, 0, 0)
        rows.append(hour_values("tests", hour, UsageRow(slot, labels, counters)))
    with store._database.change(moves_epoch=False) as connection:
        write_hours(connection, rows)


def emptied(store: UsageStore) -> None:
    with store._database.change(moves_epoch=False) as connection:
        for table in (hours, days, summed, totals):
            connection.execute(delete(table))


def sums(used: list[Use], by: int, begin: date, end: date, **tests: str) -> dict[tuple[str, str], int]:
    made: dict[tuple[str, str], int] = {}
    for offset, *labels, picos in used:
        named = dict(zip(("tenant", "team", "model", "currency"), labels, strict=True))
        day = FIRST + timedelta(days=offset)
        if begin <= day < end and all(named[name] == value for name, value in tests.items()):
            place = str(labels[by]), named["currency"]
            made[place] = made.get(place, 0) + (picos if named["currency"] else 0)
    return made


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(uses, st.integers(1, 30), st.sampled_from([(0, "tenant"), (2, "model")]), st.booleans(), st.booleans())
def test_an_overview_has_the_sums_of_its_rows(
    any_database: str, used: list[Use], length: int, label: tuple[int, Label], is_rolled: bool, has_tests: bool
) -> None:
    by, name = label
    begin, end = TODAY - timedelta(days=length), TODAY + timedelta(days=1)
    tests: dict[Any, str] = {"team": "t"} if has_tests else {}
    query = OverviewQuery(begin, end, TODAY, name, tuple(tests.items()))
    with closing(UsageStore(any_database, PEPPER, lambda: NOON)) as store:
        emptied(store)
        stored(store, used)
        from_hours = store.overview(query)
        store.sum_days(0, "")
        if not is_rolled:  # as an earlier release leaves it
            with store._database.change(moves_epoch=False) as connection:
                connection.execute(update(summed).values(rolled=0))
                connection.execute(delete(totals))
        assert store.overview(query) == from_hours
    expected = sums(used, by, begin, end, **tests)
    shown = {(row["value"], row["currency"]): row for row in from_hours["rows"]}
    for place, picos in expected.items():
        row = shown[place]
        if place[1]:
            assert _picos(row["amount"]) == picos
    assert all(row["requests"] == 0 for place, row in shown.items() if place not in expected)
    for total in from_hours["totals"]:
        if currency := total["currency"]:
            assert _picos(total["amount"]) == sum(p for (_, of), p in expected.items() if of == currency)
    with_share = [total for total in from_hours["totals"] if total["requests"]]
    assert sum(row["share"] for row in from_hours["rows"]) == pytest.approx(len(with_share))


def _picos(amount: str) -> int:
    whole, _, part = amount.partition(".")
    return int(whole) * PICOS + int(part.ljust(12, "0") or 0)


@pytest.mark.parametrize("spent", [0, 100])
def test_a_forecast_adds_the_mean_of_a_week_to_the_spend(any_database: str, spent: int) -> None:
    used = [((TODAY - FIRST).days - back, "A", "", "m", "usd", 7 * PICOS) for back in range(1, 15)]
    used += [((TODAY - FIRST).days, "A", "", "m", "usd", spent * PICOS)] if spent else []
    with closing(UsageStore(any_database, PEPPER, lambda: NOON)) as store:
        stored(store, used)
        (total,) = store.overview(OverviewQuery(TODAY.replace(day=1), TODAY + timedelta(days=1), TODAY))["totals"]
    assert total["month"] == str(14 * 7 + spent)
    assert total["forecast"] == str(max(14 * 7 + spent, 14 * 7 + 11 * 7))  # 11 days are left, among them today


def test_a_trend_compares_with_the_period_before_which_is_as_long(any_database: str) -> None:
    used = [((TODAY - FIRST).days - back, "A", "", "m", "usd", (1 if back > 7 else 3) * PICOS) for back in range(1, 15)]
    with closing(UsageStore(any_database, PEPPER, lambda: NOON)) as store:
        stored(store, used)
        store.sum_days(0, "")
        (row,) = store.overview(OverviewQuery(TODAY - timedelta(days=7), TODAY, TODAY, "key"))["rows"]
    assert (row["value"], row["tenant"], row["amount"], row["before"], row["trend"]) == ("key-A", "A", "21", "7", 2.0)


def test_the_smallest_values_are_summed_as_others(any_database: str) -> None:
    used: list[Use] = [(40, tenant, "", "m", "usd", PICOS * at) for at, tenant in enumerate("ABCDE", 1)]
    with closing(UsageStore(any_database, PEPPER, lambda: NOON)) as store:
        stored(store, used)
        shown = store.overview(OverviewQuery(FIRST, TODAY, TODAY, limit=2))
    assert [(row["value"], row["amount"]) for row in shown["rows"]] == [("E", "5"), ("D", "4"), ("(others)", "6")]
    assert shown["others"] == 3
