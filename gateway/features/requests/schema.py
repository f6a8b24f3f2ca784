"""The tables of one day: in an SQLite file of their own, or as partitions of Postgres.

A row refers to its series, which has its labels and the sums of its hour. So a label is stored once an hour, and a
search by any labels compares series before it reads rows. Totals are sums of series, or, for a search by one label or
by none, of roll-ups: one row for each value of the label in an hour.
"""

from functools import lru_cache
from typing import NamedTuple

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    cast,
    func,
    insert,
    inspect,
    literal,
    select,
    text,
)  # fmt: skip
from sqlalchemy.schema import CreateTable

from gateway.features.journal.lines import DAY_MICROS, HOUR_MICROS, LABELS, NUMBERS, begin_of
from gateway.state.schema import complete, missing

SUMS = ("requests", "picos_high", "picos_low", *NUMBERS)
"""The sums of a series. Money is in two parts of `PART` picos: a sum of an hour may exceed 64 bits."""
ROLLED = ("", "tenant", "team", "key", "model", "pool", "status", "error")
"""Labels with roll-ups. The empty one has the sums of all requests, under an empty value."""
_EARLIER = "request_recorded"
"""A table of the days of earlier releases."""
_TRACED = text("trace <> ''")
_NAMED = text("\"user\" <> ''")  # quoted: in Postgres it is the role of the connection otherwise
_DEFAULTS = {"team": ""}
"""Labels that days of an earlier release do not have."""
_PARENTS = ("request_rows", "request_series", "request_totals")


class DayTables(NamedTuple):
    """The tables of a day, or (without a suffix) their parents in Postgres."""

    rows: Table
    series: Table
    totals: Table
    """The roll-ups. `writer` is the process that counted: no two processes update the same row."""
    sources: Table
    """How much of each journal is imported."""


@lru_cache(maxsize=512)
def tables_of(suffix: str = "") -> DayTables:
    """The tables with a suffix of their names."""
    metadata = MetaData()
    rows = Table(
        f"request_rows{suffix}",
        metadata,
        Column("at", BigInteger, primary_key=True, autoincrement=False),
        Column("number", BigInteger, primary_key=True, autoincrement=False),
        Column("series", BigInteger, nullable=False),
        Column("id", Text, nullable=False),
        Column("trace", String(32), nullable=False),
        Column("endpoint", Text, nullable=False),
        Column("stream", Boolean, nullable=False),
        Column("duration", BigInteger, nullable=False),
        Column("first_chunk", BigInteger, nullable=False),
        Column("picos", BigInteger, nullable=False),
        *[Column(name, BigInteger, nullable=False) for name in NUMBERS],
        Column("detail", Text, nullable=False),
        Column("billions", BigInteger, nullable=False, server_default="0"),
        Column("user", Text, nullable=False, server_default=""),
        Index("request_rows_series", "series", "at", "number"),
        Index("request_rows_id", "id"),
        Index("request_rows_trace", "trace", sqlite_where=_TRACED, postgresql_where=_TRACED),
        Index("request_rows_user", "user", "at", "number", sqlite_where=_NAMED, postgresql_where=_NAMED),
        sqlite_with_rowid=False,
        postgresql_partition_by="RANGE (at)",
    )
    series = Table(
        f"request_series{suffix}",
        metadata,
        Column("id", BigInteger, primary_key=True, autoincrement=False),
        Column("hour", BigInteger, primary_key=True, autoincrement=False),
        *[
            Column(name, Integer if name == "status" else Text, nullable=False, server_default=_DEFAULTS.get(name))
            for name in LABELS
        ],
        *[Column(name, BigInteger, nullable=False) for name in SUMS],
        Index("request_series_hour", "hour"),
        *[Index(f"request_series_{name}", name, "hour") for name in ("tenant", "key", "model", "status", "error")],
        postgresql_partition_by="RANGE (hour)",
    )
    totals = Table(
        f"request_totals{suffix}",
        metadata,
        Column("label", String(16), primary_key=True),
        Column("value", Text, primary_key=True),
        Column("hour", BigInteger, primary_key=True, autoincrement=False),
        Column("currency", Text, primary_key=True),
        Column("writer", BigInteger, primary_key=True, autoincrement=False),
        *[Column(name, BigInteger, nullable=False) for name in SUMS],
        sqlite_with_rowid=False,
        postgresql_partition_by="RANGE (hour)",
    )
    sources = Table(
        f"request_sources{suffix}",
        metadata,
        Column("source", String(64), primary_key=True),
        Column("offset", BigInteger, nullable=False),
    )
    return DayTables(rows, series, totals, sources)


def suffix_of(day: str) -> str:
    """The suffix of a day's tables in Postgres."""
    return f"_{day.replace('-', '')}"


def is_complete(connection: Connection) -> bool:
    """Whether there are roll-ups, and all tables have the columns of this release."""
    return not missing(connection, tables_of()[:3])


def create_day(connection: Connection) -> None:
    """Create the missing tables of a day in its SQLite file."""
    tables = tables_of()
    has_totals = inspect(connection).has_table(tables.totals.name)
    complete(connection, tables)
    if not has_totals:
        _roll_up(connection, tables)


def create_parents(connection: Connection) -> None:
    """Create the missing partitioned tables in Postgres."""
    complete(connection, tables_of()[:3])


def create_partition(connection: Connection, day: str) -> None:
    """Create the missing tables of a day in Postgres, for a role without the right by the owner's function."""
    suffix, begin = suffix_of(day), begin_of(day)
    if not owns_days(connection):
        connection.execute(select(func.headrace_create_request_day(suffix, begin)))
        return
    hour = begin // HOUR_MICROS
    bounds = ((begin, begin + DAY_MICROS), (hour, hour + 24), (hour, hour + 24))
    has_totals = inspect(connection).has_table(tables_of(suffix).totals.name)
    for parent, (low, high) in zip(_PARENTS, bounds, strict=True):
        connection.exec_driver_sql(
            f"CREATE TABLE IF NOT EXISTS {parent}{suffix} PARTITION OF {parent} FOR VALUES FROM ({low}) TO ({high})"
        )
    complete(connection, (tables_of(suffix).sources,))
    if not has_totals:
        _roll_up(connection, tables_of(suffix))


def drop_partition(connection: Connection, day: str) -> None:
    """Drop the tables of a day in Postgres."""
    suffix = suffix_of(day)
    if not owns_days(connection):
        connection.execute(select(func.headrace_drop_request_day(suffix)))
        return
    for name in (*(table.name for table in tables_of(suffix)), f"{_EARLIER}{suffix}"):
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {name}")


def owns_days(connection: Connection) -> bool:
    """Whether the role of the connection owns the partitioned tables in Postgres, so that it may add partitions."""
    owner = text("SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = 'request_rows'::regclass")
    return bool(connection.execute(owner).scalar_one())


def day_functions(connection: Connection) -> list[str]:
    """SQL of the functions with which a role that owns nothing creates and drops days, and nothing else, in Postgres.

    They run with the rights of their owner, and their names are those of days only.
    """
    schema = connection.execute(select(func.quote_ident(func.current_schema()))).scalar_one()
    example = "_00000000"
    sources = CreateTable(tables_of(example).sources, if_not_exists=True).compile(dialect=connection.dialect)
    hours = f"low / {HOUR_MICROS}, low / {HOUR_MICROS} + 24"
    created = [
        f"EXECUTE format('CREATE TABLE IF NOT EXISTS {parent}%s PARTITION OF {parent} FOR VALUES FROM (%s) TO (%s)', "
        f"suffix, {bounds});"
        for parent, bounds in zip(_PARENTS, (f"low, low + {DAY_MICROS}", hours, hours), strict=True)
    ]
    created.append(f"EXECUTE format('{str(sources).replace(example, '%s')}', suffix);")
    names = [table.name for table in tables_of("%s")]
    dropped = [f"EXECUTE format('DROP TABLE IF EXISTS {name}', suffix);" for name in (*names, f"{_EARLIER}%s")]
    return [
        f"CREATE OR REPLACE FUNCTION headrace_{name}_request_day({arguments}) RETURNS void LANGUAGE plpgsql "
        f"SECURITY DEFINER SET search_path = {schema}, pg_temp AS $$ BEGIN "
        f"IF suffix !~ '^_[0-9]{{8}}$' THEN RAISE EXCEPTION 'no day: %', suffix; END IF; {' '.join(body)} END $$"
        for name, arguments, body in (
            ("create", "suffix text, low bigint", created),
            ("drop", "suffix text", dropped),
        )
    ]


def _roll_up(connection: Connection, tables: DayTables) -> None:
    """Sum the series of a day that has no roll-ups: an earlier release wrote it."""
    series = tables.series
    sums = [cast(func.sum(series.c[name]), BigInteger) for name in SUMS]
    for label in ROLLED:
        value: list[ColumnElement[str]] = [cast(series.c[label], Text)] if label else []
        groups = [*value, series.c.hour, series.c.currency]
        place = [literal(label), *(value or [literal("")]), series.c.hour, series.c.currency, literal(0)]
        names = ["label", "value", "hour", "currency", "writer", *SUMS]
        connection.execute(insert(tables.totals).from_select(names, select(*place, *sums).group_by(*groups)))
