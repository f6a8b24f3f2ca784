"""The pages of a search in one day, the newest request first. A page begins behind the key of the last row."""

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, Table, and_, func, literal, select, tuple_, union_all

from gateway.features.journal.lines import HOUR_MICROS, LABELS, NUMBERS, PART
from gateway.features.requests.schema import ROLLED, SUMS, DayTables

MOST_ROWS = 1000
CHOICES = ("tenant", "model", "pool", "status", "error")
"""Labels whose values a search may offer."""
MOST_CHOICES = 500
_CHUNK = 1000
"""Matching rows of hours that one statement reads: few statements for a search with few matches."""
_MOST_GATHERED = 5000
_MOST_MERGED = 200
"""Above these, a search reads the rows of its hours in the order of their time: it meets a match soon."""


class LabelTest(NamedTuple):
    """A comparison of a label: equal to `low`, or within `low` and `high`; without `low`, not empty."""

    label: str
    low: str | int | None
    high: int | None = None


class RequestQuery(NamedTuple):
    """A search from `begin` to before `end`, in microseconds of Unix time."""

    begin: int
    end: int
    labels: tuple[LabelTest, ...] = ()
    id: str | None = None
    trace: str | None = None
    user: str | None = None
    after: tuple[int, int] | None = None
    """The time and the number of the last row of the page before."""
    limit: int = 50

    @property
    def is_of_rows(self) -> bool:
        """Whether it compares fields that rows have, and series have not."""
        return self.id is not None or self.trace is not None or self.user is not None

    @property
    def newest(self) -> int:
        """The time of the newest row that the page may have."""
        return self.end - 1 if self.after is None else min(self.end - 1, self.after[0])


def page_of(connection: Connection, tables: DayTables, query: RequestQuery) -> list[dict[str, Any]]:
    """The first rows of a day, at most `query.limit`."""
    if query.is_of_rows or not query.labels:
        return _fetch(connection, tables, _in_order(tables, query), query.limit)
    rows: list[dict[str, Any]] = []
    for begin, end, matching in _chunks(connection, tables, query):
        left = query.limit - len(rows)
        part = query._replace(begin=max(begin, query.begin), end=min(end, query.end), limit=left)
        rows += _fetch(connection, tables, _of_series(connection, tables, part, matching), left)
        if len(rows) == query.limit:
            break
    return rows


def total_of(connection: Connection, tables: DayTables, query: RequestQuery) -> list[dict[str, Any]]:
    """The sums of the whole hours of a search in one day, by currency."""
    if query.is_of_rows:
        statement = _sums_of_rows(tables, query)
    else:
        table, tests = _summed(tables, query)
        sums = [func.sum(table.c[name]).label(name) for name in SUMS]
        statement = select(table.c.currency, *sums).where(*tests).group_by(table.c.currency)
    totals = []
    for row in connection.execute(statement).mappings():
        made = {name: row[name] if name == "currency" else int(row[name]) for name in row}
        made["picos"] = made.pop("picos_high") * PART + made.pop("picos_low")
        totals.append(made)
    return totals


def choices_of(connection: Connection, tables: DayTables, query: RequestQuery) -> dict[str, list[str]]:
    """For each label of `CHOICES`: its values in the whole hours of a search, at most `MOST_CHOICES`."""
    choices = {}
    for label in CHOICES:
        column = tables.series.c[label]
        tests = [*_hours_of(tables.series, query), *_matches(tables, query)]
        values = connection.execute(select(column).where(*tests).distinct().limit(MOST_CHOICES)).scalars()
        choices[label] = [str(value) for value in values if value not in ("", 0)]
    return choices


def _chunks(connection: Connection, tables: DayTables, query: RequestQuery) -> list[tuple[int, int, int]]:
    """Time ranges with matching series, the newest first, each with some rows: begin, end, rows."""
    table, tests = _summed(tables, query)
    counted = select(table.c.hour, func.sum(table.c.requests)).where(*tests)
    chunks: list[tuple[int, int, int]] = []
    for hour, requests in connection.execute(counted.group_by(table.c.hour).order_by(table.c.hour.desc())):
        begin, end, matching = hour * HOUR_MICROS, (hour + 1) * HOUR_MICROS, int(requests)
        # The first hour may be behind the page's begin for the most part, so that it stays alone.
        if len(chunks) > 1 and chunks[-1][2] < max(query.limit, _CHUNK):
            chunks[-1] = begin, chunks[-1][1], chunks[-1][2] + matching
        else:
            chunks.append((begin, end, matching))
    return chunks


def _of_series(connection: Connection, tables: DayTables, query: RequestQuery, matching: int) -> Select[Any]:
    """The keys of the first rows in a chunk, in the cheapest of three ways."""
    rows, series = tables.rows, tables.series
    selected = select(series.c.id).where(*_hours_of(tables.series, query), *_matches(tables, query))
    keys = select(rows.c.at, rows.c.number).where(*_within(tables, query))
    if matching <= _MOST_GATHERED:
        gathered = keys.where(rows.c.series.in_(selected)).cte("gathered").prefix_with("MATERIALIZED")
        return select(gathered.c.at, gathered.c.number)
    numbers = list(connection.execute(selected.limit(_MOST_MERGED + 1)).scalars())
    if len(numbers) > _MOST_MERGED:
        return keys.where(rows.c.series.in_(selected))
    newest = [_newest(keys.where(rows.c.series == literal(number)), rows, query.limit) for number in numbers]
    merged = union_all(*[select(part.c.at, part.c.number) for part in newest]).subquery()
    return select(merged.c.at, merged.c.number)


def _newest(keys: Select[Any], rows: Any, limit: int) -> Any:
    return keys.order_by(rows.c.at.desc(), rows.c.number.desc()).limit(limit).subquery()


def _in_order(tables: DayTables, query: RequestQuery) -> Select[Any]:
    """The keys of a search by id, by trace, by user, or by time alone."""
    rows, series = tables.rows, tables.series
    keys = select(rows.c.at, rows.c.number).where(*_within(tables, query), *_fields(tables, query))
    if query.labels:
        keys = keys.join(series, series.c.id == rows.c.series).where(*_matches(tables, query))
    return keys


def _fetch(connection: Connection, tables: DayTables, keys: Select[Any], limit: int) -> list[dict[str, Any]]:
    rows, series = tables.rows, tables.series
    at, number = keys.selected_columns
    page = keys.order_by(at.desc(), number.desc()).limit(limit).subquery()
    labels = [series.c[name] for name in LABELS]
    own = [column for column in rows.c if column.name != "series"]
    statement = (
        select(*own, *labels)
        .join(page, and_(rows.c.at == page.c.at, rows.c.number == page.c.number))
        .join(series, and_(series.c.id == rows.c.series, series.c.hour == operator.floordiv(rows.c.at, HOUR_MICROS)))
        .order_by(rows.c.at.desc(), rows.c.number.desc())
    )
    fetched = [dict(row) for row in connection.execute(statement).mappings()]
    for row in fetched:
        row["picos"] += row.pop("billions") * PART
    return fetched


def _fields(tables: DayTables, query: RequestQuery) -> list[ColumnElement[bool]]:
    """The tests of what a row itself has."""
    rows, tests = tables.rows, list[ColumnElement[bool]]()
    if query.id is not None:
        tests.append(rows.c.id == query.id)
    for column, value in ((rows.c.trace, query.trace), (rows.c.user, query.user)):
        if value is not None:
            # Spelled out: only then can the partial index be used.
            tests += [column == value, column != literal("", literal_execute=True)]
    return tests


def _sums_of_rows(tables: DayTables, query: RequestQuery) -> Select[Any]:
    """The sums of the rows of a search by id, by trace or by user. There are few, unlike those of labels."""
    rows, series = tables.rows, tables.series
    begin, end = query.begin // HOUR_MICROS * HOUR_MICROS, (query.newest // HOUR_MICROS + 1) * HOUR_MICROS
    sums: dict[str, ColumnElement[Any]] = {name: func.sum(rows.c[name]) for name in NUMBERS}
    sums["requests"] = func.count()
    sums["picos_high"] = func.sum(rows.c.billions + operator.floordiv(rows.c.picos, PART))
    sums["picos_low"] = func.sum(operator.mod(rows.c.picos, PART))
    return (
        select(series.c.currency, *[sums[name].label(name) for name in SUMS])
        .join(series, and_(series.c.id == rows.c.series, series.c.hour == operator.floordiv(rows.c.at, HOUR_MICROS)))
        .where(rows.c.at >= begin, rows.c.at < end, *_fields(tables, query), *_matches(tables, query))
        .group_by(series.c.currency)
    )


def _summed(tables: DayTables, query: RequestQuery) -> tuple[Table, list[ColumnElement[bool]]]:
    """The smallest table with the sums of a search by labels, and the tests of its rows."""
    totals = tables.totals
    if not query.labels:
        return totals, [totals.c.label == "", totals.c.value == "", *_hours_of(totals, query)]
    if len(query.labels) == 1 and query.labels[0].label in ROLLED:
        label, low, high = query.labels[0]
        tests = [totals.c.label == label, *_hours_of(totals, query)]
        return totals, [*tests, _compared(totals.c.value, _text(low), _text(high))]
    return tables.series, [*_hours_of(tables.series, query), *_matches(tables, query)]


def _text(value: str | int | None) -> str | None:
    """A label in a roll-up. A status has three digits, so that texts have the order of numbers."""
    return None if value is None else str(value)


def _hours_of(table: Table, query: RequestQuery) -> Sequence[ColumnElement[bool]]:
    return table.c.hour >= query.begin // HOUR_MICROS, table.c.hour <= query.newest // HOUR_MICROS


def _within(tables: DayTables, query: RequestQuery) -> Sequence[ColumnElement[bool]]:
    rows = tables.rows
    within = [rows.c.at >= query.begin, rows.c.at < query.end]
    if query.after is not None:
        at, number = query.after
        within += [rows.c.at <= at, tuple_(rows.c.at, rows.c.number) < tuple_(literal(at), literal(number))]
    return within


def _matches(tables: DayTables, query: RequestQuery) -> list[ColumnElement[bool]]:
    return [_compared(tables.series.c[label], low, high) for label, low, high in query.labels]


def _compared(column: ColumnElement[Any], low: str | int | None, high: str | int | None) -> ColumnElement[bool]:
    if low is None:
        return column > ""  # not empty, in a form for which an index has a range
    return column == low if high is None else and_(column >= low, column <= high)
