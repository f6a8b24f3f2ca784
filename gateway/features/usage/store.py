"""Usage in the state database: hours as they come, sums of ended days, retention.

Every method blocks: call it in a thread from async code. Methods raise `StoreUnavailable` and `StoreMismatch`.
"""

import operator
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, case, delete, func, insert, literal, not_, select, update

from gateway.auth.state import StateDatabase
from gateway.features.journal.files import WaitingLine
from gateway.features.journal.tables import Moved, add_sums, move_offset
from gateway.features.usage.begun import begin_limits, due
from gateway.features.usage.charges import charge_of
from gateway.features.usage.draws import ReadDraws, add_draws, forget_draws, read_draws
from gateway.features.usage.earlier import CountedFile
from gateway.features.usage.labels import COUNTERS, HOUR, LABELS, day_of
from gateway.features.usage.overview import OverviewQuery, overview_of
from gateway.features.usage.report import PART, UsageQuery, rows_of
from gateway.features.usage.rows import MOST_SLOTS, WriterRows, hour_values
from gateway.features.usage.schema import ROLLED, USAGE, days, hours, sources, summed, totals
from gateway.limits.long_limits import LongLimits
from gateway.state.statements import in_parts, insert_into

SETTLED = 2 * HOUR
"""Seconds after a day's end until it is summed. Later rows sum it again."""

_GROUPING = "32MB"


class UsageStore:
    """The usage of one state database. Creates missing tables when it opens."""

    def __init__(self, url: str, pepper: bytes, wall: Callable[[], float] = time.time) -> None:
        """`url` is an SQLAlchemy URL. Raises `StateConfigError` for one that cannot be used."""
        self._wall = wall
        self._rows = WriterRows()
        self._moved = Moved()
        self._database = StateDatabase(url, pepper, USAGE)

    def add(
        self, source: str, waiting: Sequence[WaitingLine], oldest: int, currency: str, most_users: int = MOST_SLOTS
    ) -> None:
        """Add the usage and the draws of lines of one file, each exactly once.

        Usage before the hour `oldest` is no longer retained. `currency` is that of requests without a cost.
        """
        if most_users != self._rows.most_users:
            self._rows = WriterRows(most_users)
        try:
            with self._database.change(moves_epoch=False) as connection:
                before = move_offset(connection, sources, source, waiting[-1].end)
                connection.execute(update(sources).where(sources.c.source == source).values(at=self._wall()))
                charges = [charge_of(line, currency) for end, line in waiting if end > before and line.counted]
                rows = self._rows.of(charge for charge in charges if charge.hour >= oldest)
                for part in in_parts(rows):
                    add_sums(connection, hours, part, COUNTERS)
                _sum_again(connection, rows)
                add_draws(connection, (d for end, line in waiting if end > before for d in line.draws), self._wall())
        except BaseException:
            self._rows = WriterRows(most_users)  # the transaction may have been committed
            raise
        self._moved.note(source, waiting[-1].end)
        if self._rows.is_long:
            self._rows = WriterRows(most_users)

    def lost(self, present: Collection[str]) -> set[str]:
        """Which of these files the database had, and has no more, as a whole or in part."""
        with self._database.transaction() as connection:
            return self._moved.lost(connection, sources, present)

    def write(self, files: Iterable[CountedFile], oldest: int) -> None:
        """Write files of counters; those before the hour `oldest` are no longer retained."""
        values = [
            hour_values(each.file.source, each.hour, row)
            for each in files
            if each.hour >= oldest
            for row in each.rows
            if any(row.counters)
        ]
        if values:
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
            # Also the days that an earlier release has summed.
            for day in list(connection.execute(select(summed.c.day).where(summed.c.rolled == 0)).scalars()):
                _roll_up(connection, day)
            # A day whose first hours are deleted could not be summed again: days are deleted as a whole.
            connection.execute(delete(hours).where(hours.c.day < day_of(oldest_hour), hours.c.day < last))
            connection.execute(delete(days).where(days.c.day < oldest_day))
            connection.execute(delete(totals).where(totals.c.day < oldest_day))
            # A file whose last import was then has no line that would still be retained.
            connection.execute(delete(sources).where(sources.c.at < oldest_hour * HOUR))
            forget_draws(connection, now)
        return ended

    def report(self, query: UsageQuery) -> list[dict[str, Any]]:
        """Sums by the labels and periods of a query."""
        with self._database.transaction() as connection:
            _allow_memory(connection)
            return rows_of(connection, query)

    def last_uses(self, tenant: str, keys: Sequence[str]) -> dict[str, str]:
        """When keys were last used: the begin of the hour, or the day of older use."""
        with self._database.transaction() as connection:
            uses: dict[str, str] = {}
            for table, time_ in ((days, days.c.day), (hours, hours.c.hour)):
                newest = select(table.c.key, func.max(time_)).where(table.c.tenant == tenant, table.c.key.in_(keys))
                for key, at in connection.execute(newest.group_by(table.c.key)):
                    moment = at if isinstance(at, str) else f"{datetime.fromtimestamp(at * HOUR, UTC):%Y-%m-%dT%H:00Z}"
                    uses[key] = moment
            return uses

    def overview(self, query: OverviewQuery) -> dict[str, Any]:
        """The usage of a period by one label, beside that of the period before."""
        with self._database.transaction() as connection:
            _allow_memory(connection)
            return overview_of(connection, query)

    def draws(self, after: int) -> ReadDraws:
        """What limits of long periods follow: what has changed after a version."""
        with self._database.transaction() as connection:
            return read_draws(connection, after, self._wall())

    def begin(self, limits: LongLimits) -> bool:
        """Let limits that are new in a configuration begin with the recorded usage. Whether that may still change."""
        now = self._wall()
        with self._database.transaction() as connection:
            _allow_memory(connection)
            work = due(connection, limits, now)
        if work.now:
            with self._database.change(moves_epoch=False) as connection:
                _allow_memory(connection)
                begin_limits(connection, limits, now)
        return work.later

    def close(self) -> None:
        """Close pooled connections."""
        self._database.close()


def _allow_memory(connection: Connection) -> None:
    """Let Postgres group in memory: it expects as many groups as labels could make, and sorts on the disk otherwise."""
    if connection.dialect.name == "postgresql":
        enough = func.pg_size_bytes(func.current_setting("work_mem")) >= func.pg_size_bytes(_GROUPING)
        connection.execute(select(func.set_config("work_mem", _GROUPING, True)).where(not_(enough)))


def write_hours(connection: Connection, values: list[dict[str, Any]]) -> None:
    """Write rows, and let their days be summed again. Amounts only grow: a row that is written twice counts once."""
    for part in in_parts(values):
        _upsert(connection, part)
    _sum_again(connection, values)


def _sum_again(connection: Connection, values: Iterable[Mapping[str, Any]]) -> None:
    touched = sorted({value["day"] for value in values})
    connection.execute(delete(summed).where(summed.c.day.in_(touched)))


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


def _roll_up(connection: Connection, day: str) -> None:
    """Sum the rows of a summed day by each label."""
    connection.execute(delete(totals).where(totals.c.day == day))
    names = (*COUNTERS, "picos_high")
    sums = [func.sum(days.c[name]) for name in names]
    nothing = literal("")
    groups = [("tenant", days.c.tenant, nothing), ("models", nothing, days.c.model)]
    groups += [(label, days.c.tenant, days.c[label]) for label in ROLLED]
    for label, tenant, value in groups:
        columns = [each for each in (tenant, value) if each is not nothing]
        rows = select(days.c.day, literal(label), tenant, value, days.c.currency, *sums).where(days.c.day == day)
        rows = rows.group_by(days.c.day, *columns, days.c.currency)
        names_of = ["day", "label", "tenant", "value", "currency", *names]
        connection.execute(insert(totals).from_select(names_of, rows))
    connection.execute(update(summed).where(summed.c.day == day).values(rolled=1))
