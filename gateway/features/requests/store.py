"""Writes and reads the days. Every method blocks: call it in a thread. Methods raise `StoreUnavailable`."""

import secrets
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, func, insert, literal, select, update

from gateway.features.journal.files import WaitingLine
from gateway.features.journal.lines import HOUR_MICROS, LABELS, NUMBERS, PART, RequestLine, day_of
from gateway.features.journal.tables import Moved, add_sums, move_offset
from gateway.features.requests.days import RequestDays
from gateway.features.requests.schema import ROLLED, SUMS, DayTables
from gateway.features.requests.search import CHOICES, MOST_CHOICES, RequestQuery, choices_of, page_of, total_of
from gateway.state.statements import in_parts

_MOST_SERIES = 100_000
_ROWS = 1000
"""Rows of one statement: a database bounds its parameters."""


class RequestStore:
    """The records of one state database. One thread writes at a time, any number read."""

    def __init__(self, days: RequestDays) -> None:
        self.days = days
        # No other writer has the same numbers, so that gateways never update the same row.
        self._next = self._writer = secrets.randbits(30) << 32
        self._series: dict[tuple[Any, ...], int] = {}
        self._moved: defaultdict[str, Moved] = defaultdict(Moved)

    def write(self, source: str, waiting: Sequence[WaitingLine], oldest: str) -> int:
        """Import lines of one file, each exactly once. Returns the number of those of days before `oldest`, which are
        lost."""
        by_day: defaultdict[str, list[WaitingLine]] = defaultdict(list)
        for each in waiting:
            by_day[day_of(each.line.at)].append(each)
        too_old = sum(len(rows) for day, rows in by_day.items() if day < oldest)
        for day, rows in sorted(by_day.items()):
            if day >= oldest:
                with self.days.writing(day) as (connection, tables):
                    self._write_day(connection, tables, source, rows)
                self._moved[day].note(source, rows[-1].end)
        return too_old

    def lost(self, present: Collection[str]) -> set[str]:
        """Which of these files the days had, and have no more, as a whole or in part."""
        lost, days = set[str](), self.days.sizes()
        for day in list(self._moved):
            if day not in days:
                lost |= self._moved.pop(day).recent(present).keys()
                self.days.forget(day)
                continue
            with self.days.reading(day) as (connection, tables):
                lost |= self._moved[day].lost(connection, tables.sources, present)
        return lost

    def search(self, query: RequestQuery) -> list[dict[str, Any]]:
        """The rows of one page, the newest first."""
        rows: list[dict[str, Any]] = []
        first, last = day_of(query.begin), day_of(query.newest)
        for day in self.days.sizes():
            if first <= day <= last and len(rows) < query.limit:
                with self.days.reading(day) as (connection, tables):
                    rows += page_of(connection, tables, query._replace(limit=query.limit - len(rows)))
        return rows

    def totals(self, query: RequestQuery) -> list[dict[str, Any]]:
        """The sums of the whole hours that a search touches, by currency."""
        sums: dict[str, dict[str, Any]] = {}
        first, last = day_of(query.begin), day_of(query.end - 1)
        for day in self.days.sizes():
            if first <= day <= last:
                with self.days.reading(day) as (connection, tables):
                    for row in total_of(connection, tables, query):
                        total = sums.setdefault(row["currency"], dict.fromkeys(row, 0) | {"currency": row["currency"]})
                        for name in row.keys() - {"currency"}:
                            total[name] += row[name]
        return [sums[currency] for currency in sorted(sums)]

    def choices(self, query: RequestQuery) -> dict[str, list[str]]:
        """For each label that a search may offer: its values in the whole hours of a search, in order."""
        values: dict[str, set[str]] = {label: set() for label in CHOICES}
        first, last = day_of(query.begin), day_of(query.end - 1)
        for day in self.days.sizes():
            if first <= day <= last:
                with self.days.reading(day) as (connection, tables):
                    for label, more in choices_of(connection, tables, query).items():
                        values[label] |= set(more)
        return {label: sorted(each)[:MOST_CHOICES] for label, each in values.items()}

    def forget_user(self, tenant: str, user: str, *, only_count: bool = False) -> int:
        """Take the name of an end user out of the rows of a tenant. Returns the number of rows."""
        count = 0
        for day in self.days.sizes():
            with self.days.reading(day) as (connection, tables):
                own = _rows_of_user(tables, tenant, user)
                named = connection.execute(select(func.count()).select_from(tables.rows).where(*own)).scalar_one()
            if named and not only_count:
                with self.days.writing(day) as (connection, tables):
                    own = _rows_of_user(tables, tenant, user)
                    named = connection.execute(update(tables.rows).where(*own).values(user="")).rowcount
            count += named
        return count

    def close(self) -> None:
        """Close pooled connections."""
        self.days.close()

    def _write_day(
        self, connection: Connection, tables: DayTables, source: str, waiting: Sequence[WaitingLine]
    ) -> None:
        before = move_offset(connection, tables.sources, source, waiting[-1].end)
        lines = [line for end, line in waiting if end > before]
        if not lines:
            return
        series = [self._series_of(line) for line in lines]
        self._add_to_series(connection, tables, lines, series)
        for some in in_parts(list(zip(lines, series, strict=True)), _ROWS):
            _insert(connection, tables.rows, [self._row(line, number) for line, number in some])

    def _series_of(self, line: RequestLine) -> int:
        labels = (line.at // HOUR_MICROS, *line.labels)
        number = self._series.get(labels)
        if number is None:
            if len(self._series) >= _MOST_SERIES:
                self._series.clear()
            number = self._series[labels] = self._number()
        return number

    def _number(self) -> int:
        self._next += 1
        return self._next

    def _add_to_series(
        self, connection: Connection, tables: DayTables, lines: Sequence[RequestLine], numbers: Sequence[int]
    ) -> None:
        added: dict[int, dict[str, Any]] = {}
        for line, number in zip(lines, numbers, strict=True):
            sums = added.get(number)
            if sums is None:
                sums = added[number] = {"id": number, "hour": line.at // HOUR_MICROS, **dict.fromkeys(SUMS, 0)}
                sums |= dict(zip(LABELS, line.labels, strict=True))
            sums["requests"] += line.requests
            sums["picos_high"] += line.billions + line.picos // PART
            sums["picos_low"] += line.picos % PART
            for name, value in zip(NUMBERS, line.usage, strict=True):
                sums[name] += value
        add_sums(connection, tables.series, added.values(), SUMS)
        self._roll_up(connection, tables, added.values())

    def _roll_up(self, connection: Connection, tables: DayTables, series: Iterable[Mapping[str, Any]]) -> None:
        """Add the sums of series to the roll-ups of their labels."""
        added: dict[tuple[str, str, int, str], dict[str, Any]] = {}
        for sums in series:
            hour, currency = sums["hour"], sums["currency"]
            for label in ROLLED:
                value = str(sums[label]) if label else ""
                total = added.get((label, value, hour, currency))
                if total is None:
                    total = added[label, value, hour, currency] = {
                        "label": label, "value": value, "hour": hour, "currency": currency, "writer": self._writer,
                        **dict.fromkeys(SUMS, 0),
                    }  # fmt: skip
                for name in SUMS:
                    total[name] += sums[name]
        add_sums(connection, tables.totals, added.values(), SUMS)

    def _row(self, line: RequestLine, series: int) -> dict[str, Any]:
        row = {"at": line.at, "number": self._number(), "series": series, "id": line.id, "trace": line.trace,
               "endpoint": line.endpoint, "stream": line.stream, "duration": line.duration,
               "first_chunk": line.first_chunk, "picos": line.picos, "billions": line.billions,
               "detail": line.detail, "user": line.user}  # fmt: skip
        return row | dict(zip(NUMBERS, line.usage, strict=True))


def _rows_of_user(tables: DayTables, tenant: str, user: str) -> tuple[ColumnElement[bool], ...]:
    rows, series = tables.rows, tables.series
    is_user = rows.c.user == user, rows.c.user != literal("", literal_execute=True)  # so that the index can be used
    return *is_user, rows.c.series.in_(select(series.c.id).where(series.c.tenant == tenant))


def _insert(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows with the same columns, in the types of the driver.

    The driver receives the parameters as they are: their processing by SQLAlchemy took a fifth of a row's CPU time.
    """
    compiled = insert(table).compile(dialect=connection.dialect, column_keys=list(rows[0]))
    names: Sequence[str] | None = getattr(compiled, "positiontup", None)
    parameters: Any = list(rows) if names is None else [tuple([row[name] for name in names]) for row in rows]
    connection.exec_driver_sql(str(compiled), parameters)
