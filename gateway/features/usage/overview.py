"""The usage of a whole installation in a period by one label: sums, shares, the period before, and a forecast.

Ended days come from their roll-ups by one label, or with other tests from their rows; open days come from the hours.
"""

import operator
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    Select,
    Table,
    and_,
    case,
    func,
    literal,
    select,
    union_all,
)

from config.schema.money import PICOS, format_amount
from gateway.features.usage.labels import OTHERS
from gateway.features.usage.report import PART, Label
from gateway.features.usage.schema import ROLLED, days, hours, summed, totals

WEEK = 7
METHOD = "spent until yesterday, and the mean of the last 7 whole days for each day that is left, among them today"
MOST_ROWS = 1000
_COUNTS = ("requests", "failures", "prompt_tokens", "completion_tokens", "rows")
_SPANS = ("now", "before", "month", "ended", "week")
_SUMS = (*(("picos", span) for span in _SPANS), ("requests", "before"))


class OverviewQuery(NamedTuple):
    """A period of whole days in UTC, from `begin` to before `end`."""

    begin: date
    end: date
    today: date
    by: Label = "tenant"
    tests: tuple[tuple[Label, str], ...] = ()
    """Labels and the values that they must have."""
    limit: int = 200

    @property
    def before(self) -> date:
        """The begin of the period before, which is as long."""
        return self.begin - (self.end - self.begin)

    @property
    def first(self) -> date:
        """The first day of which anything is needed."""
        return min(self.before, self.today.replace(day=1), self.today - timedelta(days=WEEK))

    @property
    def days_left(self) -> int:
        """Days of this month that have not ended, among them today."""
        return ((self.today.replace(day=1) + timedelta(days=32)).replace(day=1) - self.today).days


def overview_of(connection: Connection, query: OverviewQuery) -> dict[str, Any]:
    """The largest values of the label, their sum with all others by currency, and the sums of each day."""
    source = list(_source(connection, query))
    rows = _grouped(connection, query, source)
    rows.sort(key=lambda row: (-row["now"], -row["requests"], row["tenant"], row["value"]))
    sums = _summed(rows)
    shown = [_shown(row, sums[row["currency"]], query) for row in rows[: query.limit]]
    if len(rows) > query.limit:
        rest = _summed(rows[query.limit :])
        shown += [_shown({**row, "value": OTHERS, "tenant": ""}, sums[each], query) for each, row in rest.items()]
    return {
        "from": query.begin.isoformat(),
        "to": query.end.isoformat(),
        "by": query.by,
        "rows": shown,
        "others": max(0, len(rows) - query.limit),
        "totals": [_shown({**row, "value": "", "tenant": ""}, row, query) for _, row in sorted(sums.items())],
        "days": _by_day(connection, query, source),
        "forecast": {"month": f"{query.today:%Y-%m}", "method": METHOD},
    }


# ── the rows that are summed ──────────────────────────────────────────────────────────────────────────


def _source(connection: Connection, query: OverviewQuery) -> Iterator[Select[Any]]:
    """The rows of each table, without those of days that another table has: each day comes from one of them."""
    statement = select(summed.c.day, summed.c.rolled).where(summed.c.day >= query.first.isoformat())
    ended = {row.day: row.rolled for row in connection.execute(statement)}
    length = (max(query.end, query.today + timedelta(days=1)) - query.first).days
    needed = [(query.first + timedelta(days=number)).isoformat() for number in range(length)]
    rolls = _roll_up(query)
    if rolled := [day for day in needed if rolls is not None and ended.get(day)]:
        label, value, tests = rolls if rolls is not None else ("", totals.c.value, ())
        yield _columns(totals, value, rolled).where(totals.c.label == label, *tests)
    for table, whole in ((days, True), (hours, False)):
        if chosen := [day for day in needed if (day in ended) == whole and not (rolls is not None and ended.get(day))]:
            tests = tuple(table.c[label] == value for label, value in query.tests)
            yield _columns(table, table.c[query.by], chosen).where(*tests)


def _roll_up(query: OverviewQuery) -> tuple[str, ColumnElement[Any], tuple[ColumnElement[bool], ...]] | None:
    """The roll-up that has the sums of a query: its label, the column of the value, and further tests."""
    if query.by == "tenant" and not query.tests:
        return "tenant", totals.c.tenant, ()
    if query.by not in ROLLED or any(label != "tenant" for label, _ in query.tests):
        return None
    if query.tests:
        return query.by, totals.c.value, tuple(totals.c.tenant == tenant for _, tenant in query.tests)
    return ("models" if query.by == "model" else query.by), totals.c.value, ()


def _columns(table: Table, value: ColumnElement[Any], chosen: Sequence[str]) -> Select[Any]:
    high = literal(0).label("picos_high") if table is hours else table.c.picos_high
    own = [table.c[name] for name in ("day", "tenant", "currency", "picos", *_COUNTS)]
    return select(*own, value.label("value"), high).where(table.c.day.in_(chosen))


# ── sums ──────────────────────────────────────────────────────────────────────────────────────────────


def _grouped(connection: Connection, query: OverviewQuery, source: list[Select[Any]]) -> list[dict[str, Any]]:
    """The sums by value and currency. Keys and teams belong to a tenant, so these have one too."""
    if not source:
        return []
    rows = union_all(*source).subquery()
    owned = rows.c.tenant if query.by in ("team", "key") else literal("")
    groups = [owned.label("tenant"), rows.c.value, rows.c.currency]
    within = _within(rows, query)
    sums = [func.sum(case((within["now"], rows.c[name]), else_=0)).label(name) for name in _COUNTS]
    for name, span in _SUMS:
        for label, part in _parts(rows, name, span):
            sums.append(func.sum(case((within[span], part), else_=0)).label(label))
    statement = select(*groups, *sums).group_by(*groups)
    return [_whole(row) for row in connection.execute(statement).mappings()]


def _parts(rows: Any, name: str, span: str) -> list[tuple[str, ColumnElement[Any]]]:
    """A sum of money needs two parts: that of a year may exceed 64 bits."""
    if name != "picos":
        return [(f"{name}_{span}", rows.c[name])]
    high = operator.floordiv(rows.c.picos, PART) + rows.c.picos_high
    return [(f"{span}_low", operator.mod(rows.c.picos, PART)), (f"{span}_high", high)]


def _within(rows: Any, query: OverviewQuery) -> dict[str, ColumnElement[bool]]:
    def span(begin: date, end: date) -> ColumnElement[bool]:
        return and_(rows.c.day >= begin.isoformat(), rows.c.day < end.isoformat())

    today = query.today
    return {
        "now": span(query.begin, query.end),
        "before": span(query.before, query.begin),
        "month": span(today.replace(day=1), today + timedelta(days=1)),
        "ended": span(today.replace(day=1), today),
        "week": span(today - timedelta(days=WEEK), today),
    }


def _whole(row: RowMapping) -> dict[str, Any]:
    made = {name: row[name] for name in ("tenant", "value", "currency")}
    made |= {name: int(row[name]) for name in (*_COUNTS, "requests_before")}
    return made | {span: int(row[f"{span}_high"]) * PART + int(row[f"{span}_low"]) for span in _SPANS}


def _summed(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The sums of all rows of each currency."""
    sums: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for row in rows:
        of = sums[row["currency"]]
        of["currency"] = row["currency"]
        for name, value in row.items():
            if isinstance(value, int):
                of[name] = of.get(name, 0) + value
    return dict(sums)


def _shown(row: Mapping[str, Any], of: Mapping[str, Any], query: OverviewQuery) -> dict[str, Any]:
    """A row as JSON. Without a currency, the share and the trend are those of requests."""
    name = "now" if row["currency"] else "requests"
    earlier = row["before"] if row["currency"] else row["requests_before"]
    made = {each: row[each] for each in ("value", "tenant", "currency", *_COUNTS)}
    made["share"] = row[name] / of[name] if of[name] else 0.0
    made["trend"] = row[name] / earlier - 1 if earlier else None
    if row["currency"]:
        forecast = max(row["month"], row["ended"] + row["week"] * query.days_left // WEEK)
        amounts = {"amount": row["now"], "before": row["before"], "month": row["month"], "forecast": forecast}
        made |= {each: format_amount(picos) for each, picos in amounts.items()}
    return made


def _by_day(connection: Connection, query: OverviewQuery, source: list[Select[Any]]) -> list[dict[str, Any]]:
    if not source:
        return []
    rows = union_all(*source).subquery()
    high = operator.floordiv(rows.c.picos, PART) + rows.c.picos_high
    sums = [func.sum(operator.mod(rows.c.picos, PART)), func.sum(high), func.sum(rows.c.requests)]
    groups = [rows.c.day, rows.c.currency]
    statement = select(*groups, *sums).where(_within(rows, query)["now"]).group_by(*groups).order_by(*groups)
    return [
        {"day": day, "currency": currency, "amount": (int(high) * PART + int(low)) / PICOS, "requests": int(requests)}
        for day, currency, low, high, requests in connection.execute(statement)
    ]
