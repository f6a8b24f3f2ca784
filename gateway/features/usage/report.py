"""Sums of usage by label and period. Whole days come from their sums, other hours from the hours."""

import operator
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from sqlalchemy import ColumnElement, Connection, and_, func, literal, select, tuple_, union_all

from gateway.features.usage.labels import COUNTERS, LABELS, day_of
from gateway.features.usage.schema import days, hours, summed

Label = Literal["tenant", "key", "model", "arm", "currency", "team", "user"]
Period = Literal["hour", "day", "month"]
PER_CHARGE: tuple[Label, ...] = ("tenant", "key", "model", "arm", "team")
"""The labels of a charge in an export."""
PER_LINE: tuple[Label, ...] = ("model", "team")
"""The labels of the rows of an invoice."""
MOST_ROWS = 10_000
PART = 10**9
"""Large amounts are summed in two parts: a sum of a year's picos may exceed 64 bits."""


class UsageQuery(NamedTuple):
    """Sums from the hour `begin` to before the hour `end` (Unix time // 3600)."""

    begin: int
    end: int
    by: tuple[Label, ...] = ("tenant",)
    """Amounts of money are always separate by currency."""
    per: Period | None = None
    """One row for each period; None for the sum of all."""
    tenant: str | None = None
    tests: tuple[tuple[Label, str], ...] = ()
    """Further labels, and the values that they must have."""
    after: Sequence[str | int] = ()
    """The group of the last row of the page before."""
    limit: int = MOST_ROWS


def groups_of(query: UsageQuery) -> tuple[str, ...]:
    """The names of the columns that identify a row, in the order of the rows."""
    period = () if query.per is None else (query.per,)
    return (*period, *query.by, *(() if "currency" in query.by else ("currency",)))


def rows_of(connection: Connection, query: UsageQuery) -> list[dict[str, Any]]:
    """The rows of one page."""
    source = _source(connection, query).subquery()
    groups = groups_of(query)
    columns = [source.c[name] for name in groups]
    sums: list[ColumnElement[Any]] = []
    for name in COUNTERS:
        sums += [func.sum(operator.floordiv(source.c[name], PART)), func.sum(operator.mod(source.c[name], PART))]
    sums.append(func.sum(source.c.picos_high))
    statement = select(*columns, *sums).group_by(*columns).order_by(*columns).limit(query.limit)
    if query.after:
        statement = statement.where(tuple_(*columns) > tuple_(*[literal(value) for value in query.after]))
    rows = []
    for row in connection.execute(statement):
        parts = [int(part) for part in row[len(groups) :]]
        amounts = [high * PART + low for high, low in zip(parts[:-1:2], parts[1::2], strict=True)]
        amounts[0] += parts[-1] * PART
        rows.append(dict(zip(groups, row, strict=False)) | dict(zip(COUNTERS, amounts, strict=True)))
    return rows


def _source(connection: Connection, query: UsageQuery) -> Any:
    """The rows of both tables that are in the query's time, with a column for its period."""
    within = and_(hours.c.hour >= query.begin, hours.c.hour < query.end)
    first, last = day_of(query.begin + 23), day_of(query.end)
    ended = select(summed.c.day).where(summed.c.day >= first, summed.c.day < last)
    whole = [] if query.per == "hour" else list(connection.execute(ended).scalars())
    read = sorted(set(_days_with_hours(connection, day_of(query.begin), day_of(query.end - 1))) - set(whole))
    of_hours = _columns(hours, query, hours.c.hour if query.per == "hour" else _period(hours, query))
    of_hours = of_hours.where(within, hours.c.day.in_(read))
    if query.per == "hour":
        return of_hours
    # A day that is summed stays in the database when its hours have been deleted.
    of_days = _columns(days, query, _period(days, query)).where(days.c.day.in_(whole))
    return union_all(of_hours, of_days)


def _days_with_hours(connection: Connection, first: str, last: str) -> Iterator[str]:
    """The days from `first` to `last` with rows of hours. The index has them: most rows are those of summed days."""
    while first <= last:
        following = select(func.min(hours.c.day)).where(hours.c.day >= first, hours.c.day <= last)
        if (day := connection.execute(following).scalar()) is None:
            return
        yield day
        first = f"{day} "  # the next text after it


def _period(table: Any, query: UsageQuery) -> ColumnElement[Any]:
    if query.per == "month":
        return func.substr(table.c.day, 1, 7)
    column: ColumnElement[Any] = table.c.day
    return column


def _columns(table: Any, query: UsageQuery, period: ColumnElement[Any]) -> Any:
    named = period.label(query.per or "period")
    high = days.c.picos_high if table is days else literal(0).label("picos_high")
    columns = select(named, *[table.c[name] for name in (*LABELS, *COUNTERS)], high)
    tests = [table.c[label] == value for label, value in query.tests]
    return columns.where(*tests, *([] if query.tenant is None else [table.c.tenant == query.tenant]))
