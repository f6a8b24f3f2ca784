"""Usage in the state database: hours as they come, sums of ended days, retention.

Every method blocks: call it in a thread from async code. Methods raise `StoreUnavailable` and `StoreMismatch`.
"""

import operator
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, case, delete, func, insert, select

from gateway.auth.state import StateDatabase
from gateway.features.usage.files import CountedFile
from gateway.features.usage.labels import COUNTERS, HOUR, LABELS, UsageRow, day_of
from gateway.features.usage.report import PART, UsageQuery, rows_of
from gateway.features.usage.schema import USAGE, days, hours, summed
from gateway.state.statements import in_parts, insert_into

SETTLED = 2 * HOUR
"""Seconds after a day's end until it is summed. Later rows sum it again."""


class UsageStore:
    """The usage of one state database. Creates missing tables when it opens."""

    def __init__(self, url: str, pepper: bytes, wall: Callable[[], float] = time.time) -> None:
        """`url` is an SQLAlchemy URL. Raises `StateConfigError` for one that cannot be used."""
        self._wall = wall
        self._database = StateDatabase(url, pepper, USAGE)

    def write(self, changed: Iterable[tuple[CountedFile, UsageRow]], oldest: int) -> None:
        """Write rows of files; rows before the hour `oldest` are no longer retained, and dropped.

        Amounts only grow, so that rows in any order, more than once and by several writers are right.
        """
        values = [hour_values(file.source, file.hour, row) for file, row in changed if file.hour >= oldest]
        if not values:
            return
        with self._database.change(moves_epoch=False) as connection:
            write_hours(connection, values)

    def sum_days(self, oldest_hour: int, oldest_day: str) -> list[str]:
        """Sum the ended days that are not summed, and delete what is no longer retained. Returns the days."""
        now = self._wall()
        last = day_of(int(now - SETTLED) // HOUR)  # this day has not ended
        with self._database.change(moves_epoch=False) as connection:
            open_days = (
                select(hours.c.day).where(hours.c.day < last, hours.c.day.not_in(select(summed.c.day))).distinct()
            )
            ended = list(connection.execute(open_days.order_by(hours.c.day)).scalars())
            for day in ended:
                _sum_day(connection, day, now)
            # A day whose first hours are deleted could not be summed again: days are deleted as a whole.
            connection.execute(delete(hours).where(hours.c.day < day_of(oldest_hour), hours.c.day < last))
            connection.execute(delete(days).where(days.c.day < oldest_day))
        return ended

    def report(self, query: UsageQuery) -> list[dict[str, Any]]:
        """Sums by the labels and periods of a query."""
        with self._database.transaction() as connection:
            return rows_of(connection, query)

    def rows_of_process(self, process: str) -> list[dict[str, Any]]:
        """The sums of one process by hour and labels."""
        groups = [hours.c.hour, *[hours.c[name] for name in LABELS]]
        sums = [func.sum(operator.floordiv(hours.c.picos, PART)), func.sum(operator.mod(hours.c.picos, PART))]
        sums += [func.sum(hours.c[name]) for name in COUNTERS[1:]]
        # A dash precedes a dot: these are the names that begin with the process and a dash.
        own = hours.c.source.between(f"{process}-", f"{process}.")
        with self._database.transaction() as connection:
            rows = connection.execute(select(*groups, *sums).where(own).group_by(*groups))
            return [_row_of_process(tuple(row)) for row in rows]

    def close(self) -> None:
        """Close pooled connections."""
        self._database.close()


def _row_of_process(row: tuple[Any, ...]) -> dict[str, Any]:
    hour, labels, (high, low, *others) = row[0], row[1 : 1 + len(LABELS)], map(int, row[1 + len(LABELS) :])
    amounts = dict(zip(COUNTERS, (high * PART + low, *others), strict=True))
    return {"hour": hour, **dict(zip(LABELS, labels, strict=True)), **amounts}


def write_hours(connection: Connection, values: list[dict[str, Any]]) -> None:
    """Write rows, and let their days be summed again. Amounts only grow: a row that is written twice counts once."""
    for part in in_parts(values):
        _upsert(connection, part)
    touched = sorted({value["day"] for value in values})
    connection.execute(delete(summed).where(summed.c.day.in_(touched)))


def hour_values(source: str, hour: int, row: UsageRow) -> dict[str, Any]:
    """The columns of a row of one hour. `source` and the slot identify it."""
    place = {"source": source, "slot": row.slot, "hour": hour, "day": day_of(hour)}
    return place | dict(zip(LABELS, row.labels, strict=True)) | dict(zip(COUNTERS, row.counters, strict=True))


def _upsert(connection: Connection, values: Sequence[dict[str, Any]]) -> None:
    statement = insert_into(connection, hours)
    new = statement.excluded
    larger = {name: case((new[name] > hours.c[name], new[name]), else_=hours.c[name]) for name in COUNTERS}
    connection.execute(statement.on_conflict_do_update(index_elements=["source", "slot"], set_=larger), values)


def _sum_day(connection: Connection, day: str, now: float) -> None:
    connection.execute(delete(days).where(days.c.day == day))
    labels = [hours.c[name] for name in LABELS]
    others = [func.sum(hours.c[name]) for name in COUNTERS[1:]]
    picos = hours.c.picos
    money = [func.sum(operator.mod(picos, PART)), func.sum(operator.floordiv(picos, PART))]
    of_day = select(hours.c.day, *labels, *others, *money).where(hours.c.day == day).group_by(hours.c.day, *labels)
    connection.execute(insert(days).from_select(["day", *LABELS, *COUNTERS[1:], "picos", "picos_high"], of_day))
    connection.execute(delete(summed).where(summed.c.day == day))
    connection.execute(insert(summed).values(day=day, at=now))
