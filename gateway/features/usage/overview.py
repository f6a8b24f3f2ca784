"""The usage of a whole installation in a period by one label: sums, shares, the period before, and a forecast.

Ended days come from their roll-ups by one label, or with other tests from their rows; open days come from the hours.
"""

import operator
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    Table,
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
_SUMS = (*_COUNTS, "requests_before", *_SPANS)
_OWNED = ("team", "key", "user")
"""Labels whose values belong to a tenant."""


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
    ended = _ended(connection, query)
    recent = _open_days(connection, query, ended)
    rows = _grouped(connection, query, ended, recent)
    rows.sort(key=lambda row: (-row["now"], -row["requests"], row["tenant"], row["value"], row["currency"]))
    sums = _summed(rows)
    rows = [row for row in rows if row["requests"] or row["requests_before"]]
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
        "days": _by_day(connection, query, ended, recent),
        "forecast": {"month": f"{query.today:%Y-%m}", "method": METHOD},
    }


# ── the rows that are summed ──────────────────────────────────────────────────────────────────────────


class _Days(NamedTuple):
    """The needed days by the table that has them."""

    rolled: list[str]
    summed: list[str]
    open: list[str]


def _ended(connection: Connection, query: OverviewQuery) -> _Days:
    statement = select(summed.c.day, summed.c.rolled).where(summed.c.day >= query.first.isoformat())
    ended = {row.day: row.rolled for row in connection.execute(statement)}
    length = (max(query.end, query.today + timedelta(days=1)) - query.first).days
    needed = [(query.first + timedelta(days=number)).isoformat() for number in range(length)]
    return _Days(
        [day for day in needed if ended.get(day)],
        [day for day in needed if day in ended and not ended[day]],
        [day for day in needed if day not in ended],
    )


def _source(query: OverviewQuery, ended: _Days, label: str) -> list[Select[Any]]:
    """The rows of the ended days: those of a roll-up, and those of days for which there is none."""
    roll_up, rest = _roll_up(query, label), ended.summed
    source = []
    if roll_up is None:
        rest = [*ended.rolled, *rest]
    elif ended.rolled:
        name, value, tests = roll_up
        source.append(_columns(totals, value, ended.rolled).where(totals.c.label == name, *tests))
    if rest:
        source.append(_columns(days, days.c[label], rest).where(*_tests(days, query)))
    return source


def _roll_up(query: OverviewQuery, by: str) -> tuple[str, ColumnElement[Any], tuple[ColumnElement[bool], ...]] | None:
    """The roll-up that has the sums of a query: its label, the column of the value, and further tests."""
    if any(label != "tenant" for label, _ in query.tests) or by not in (*ROLLED, "tenant"):
        return None
    tests = tuple(totals.c.tenant == tenant for _, tenant in query.tests)
    if by == "model" and not tests:
        return "models", totals.c.value, ()
    return by, totals.c.tenant if by == "tenant" else totals.c.value, tests


def _tests(table: Table, query: OverviewQuery) -> list[ColumnElement[bool]]:
    return [table.c[label] == value for label, value in query.tests]


def _columns(table: Table, value: ColumnElement[Any], chosen: Sequence[str]) -> Select[Any]:
    own = [table.c[name] for name in ("day", "tenant", "currency", "picos", "picos_high", *_COUNTS)]
    return select(*own, value.label("value")).where(table.c.day.in_(chosen))


def _money(rows: Any) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
    """Money in two parts, high and low: the sum of a year may exceed 64 bits."""
    return operator.floordiv(rows.picos, PART) + rows.picos_high, operator.mod(rows.picos, PART)


def _open_days(connection: Connection, query: OverviewQuery, ended: _Days) -> list[Row[Any]]:
    """The sums of the days that have not ended, by day, value and currency, from their hours."""
    columns = hours.c
    groups = [columns.day, _owner(columns.tenant, query), columns[query.by].label("value"), columns.currency]
    money = (operator.floordiv(columns.picos, PART), operator.mod(columns.picos, PART))
    sums = [func.sum(part).label(name) for name, part in zip(("high", "low"), money, strict=True)]
    sums += [func.sum(columns[name]).label(name) for name in _COUNTS]
    statement = select(*groups, *sums).where(columns.day.in_(ended.open), *_tests(hours, query))
    owner = [columns.tenant] if query.by in _OWNED else []
    names = [columns.day, *owner, columns[query.by], columns.currency]
    return list(connection.execute(statement.group_by(*names)))


def _owner(tenant: ColumnElement[Any], query: OverviewQuery) -> ColumnElement[Any]:
    """The tenant of a row, where values of two tenants are different ones."""
    owner: ColumnElement[Any] = tenant if query.by in _OWNED else literal("")
    return owner.label("tenant")


# ── sums ──────────────────────────────────────────────────────────────────────────────────────────────


def _grouped(
    connection: Connection, query: OverviewQuery, ended: _Days, recent: list[Row[Any]]
) -> list[dict[str, Any]]:
    """The sums by value and currency. Keys and teams belong to a tenant, so these have one too."""
    made: dict[tuple[str, ...], dict[str, Any]] = {}
    if source := _source(query, ended, query.by):
        rows = union_all(*source).subquery().c
        part = _part(rows.day, query).label("day")
        sums = [func.sum(each).label(name) for name, each in zip(("high", "low"), _money(rows), strict=True)]
        sums += [func.sum(rows[name]).label(name) for name in _COUNTS]
        groups = [part, *([rows.tenant] if query.by in _OWNED else []), rows.value, rows.currency]
        statement = select(part, _owner(rows.tenant, query), rows.value, rows.currency, *sums).group_by(*groups)
        _add(made, connection.execute(statement), query)
    _add(made, recent, query)
    return list(made.values())


def _part(day: ColumnElement[Any], query: OverviewQuery) -> ColumnElement[Any]:
    """The first day of the part of all spans that a day is in: a part is in a span or beside it, and is summed once."""
    begins = sorted({each for span in _spans(query).values() for each in span}, reverse=True)
    return case(*[(day >= begin, begin) for begin in begins], else_="")


def _spans(query: OverviewQuery) -> dict[str, tuple[str, str]]:
    """The first day of each span of time, and the day after its last one."""
    today, month = query.today, query.today.replace(day=1)
    spans = {
        "now": (query.begin, query.end),
        "before": (query.before, query.begin),
        "month": (month, today + timedelta(days=1)),
        "ended": (month, today),
        "week": (today - timedelta(days=WEEK), today),
    }
    return {name: (begin.isoformat(), end.isoformat()) for name, (begin, end) in spans.items()}


def _nothing(tenant: str, value: str, currency: str) -> dict[str, Any]:
    named = {"tenant": tenant, "value": value, "currency": currency}
    return named | dict.fromkeys(_SUMS, 0)


def _add(made: dict[tuple[str, ...], dict[str, Any]], rows: Iterable[Sequence[Any]], query: OverviewQuery) -> None:
    """Add the sums of days, or of parts of spans, to the spans that they are in."""
    spans, within = _spans(query), dict[str, list[str]]()
    for day, tenant, value, currency, high, low, *counts in rows:
        if (own := within.get(day)) is None:
            own = within[day] = [span for span, (begin, end) in spans.items() if begin <= day < end]
        place = tenant, value, currency
        if (sums := made.get(place)) is None:
            sums = made[place] = _nothing(*place)
        picos = int(high) * PART + int(low)
        for span in own:
            sums[span] += picos
            if span == "before":
                sums["requests_before"] += int(counts[0])
            elif span == "now":
                for name, count in zip(_COUNTS, counts, strict=True):
                    sums[name] += int(count)


def _summed(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The sums of all rows of each currency."""
    sums: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for row in rows:
        of = sums[row["currency"]]
        if not of:
            of |= {"currency": row["currency"], **dict.fromkeys(_SUMS, 0)}
        for name in _SUMS:
            of[name] += row[name]
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


def _by_day(connection: Connection, query: OverviewQuery, ended: _Days, recent: list[Row[Any]]) -> list[dict[str, Any]]:
    begin, end = _spans(query)["now"]
    made: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    read: list[Row[Any]] = []
    # The roll-up with the fewest rows: one of a tenant, or the models of all.
    if source := _source(query, ended, "tenant" if query.tests else "model"):
        rows = union_all(*source).subquery().c
        sums = [func.sum(part).label(name) for name, part in zip(("high", "low"), _money(rows), strict=True)]
        groups = [rows.day, rows.currency]
        statement = select(*groups, *sums, func.sum(rows.requests).label("requests")).where(rows.day >= begin)
        read += connection.execute(statement.group_by(*groups))
    for row in (*read, *recent):
        if begin <= row.day < end:
            of = made[row.day, row.currency]
            of[0] += int(row.high) * PART + int(row.low)
            of[1] += int(row.requests)
    return [
        {"day": day, "currency": currency, "amount": picos / PICOS, "requests": requests}
        for (day, currency), (picos, requests) in sorted(made.items())
    ]
