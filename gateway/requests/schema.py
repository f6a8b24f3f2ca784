"""The tables of one day: in an SQLite file of their own, or as partitions of Postgres.

A row refers to its series, which has its labels and the sums of its hour. So a label is stored once an hour, a search
by any labels compares series before it reads rows, and totals are sums of series.
"""

from functools import lru_cache
from typing import NamedTuple

from sqlalchemy import BigInteger, Boolean, Column, Connection, Index, Integer, MetaData, String, Table, Text, text
from sqlalchemy.schema import CreateIndex, CreateTable

from gateway.requests.lines import DAY_MICROS, HOUR_MICROS, LABELS, NUMBERS, begin_of

SUMS = ("requests", "picos_high", "picos_low", *NUMBERS)
"""The sums of a series. Money is in two parts of `PART` picos: a sum of an hour may exceed 64 bits."""
PART = 10**9
_TRACED = text("trace <> ''")
_PARENTS = ("request_rows", "request_series")


class DayTables(NamedTuple):
    """The tables of a day, or (without a suffix) their parents in Postgres."""

    rows: Table
    series: Table
    sources: Table
    """How much of each file of a spool is imported."""


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
        Index("request_rows_series", "series", "at", "number"),
        Index("request_rows_id", "id"),
        Index("request_rows_trace", "trace", sqlite_where=_TRACED, postgresql_where=_TRACED),
        sqlite_with_rowid=False,
        postgresql_partition_by="RANGE (at)",
    )
    series = Table(
        f"request_series{suffix}",
        metadata,
        Column("id", BigInteger, primary_key=True, autoincrement=False),
        Column("hour", BigInteger, primary_key=True, autoincrement=False),
        *[Column(name, Integer if name == "status" else Text, nullable=False) for name in LABELS],
        *[Column(name, BigInteger, nullable=False) for name in SUMS],
        Index("request_series_hour", "hour"),
        *[Index(f"request_series_{name}", name, "hour") for name in ("tenant", "model", "status", "error")],
        postgresql_partition_by="RANGE (hour)",
    )
    sources = Table(
        f"request_sources{suffix}",
        metadata,
        Column("source", String(64), primary_key=True),
        Column("offset", BigInteger, nullable=False),
    )
    return DayTables(rows, series, sources)


def suffix_of(day: str) -> str:
    """The suffix of a day's tables in Postgres."""
    return f"_{day.replace('-', '')}"


def create_day(connection: Connection) -> None:
    """Create the missing tables of a day in its SQLite file."""
    tables = tables_of()
    for table in tables:
        connection.execute(CreateTable(table, if_not_exists=True))
    _create_indexes(connection, tables)


def create_parents(connection: Connection) -> None:
    """Create the missing partitioned tables in Postgres."""
    tables = tables_of()
    for table in (tables.rows, tables.series):
        connection.execute(CreateTable(table, if_not_exists=True))
    _create_indexes(connection, tables)


def create_partition(connection: Connection, day: str) -> None:
    """Create the missing tables of a day in Postgres."""
    suffix, begin = suffix_of(day), begin_of(day)
    hour = begin // HOUR_MICROS
    bounds = ((begin, begin + DAY_MICROS), (hour, hour + 24))
    for parent, (low, high) in zip(_PARENTS, bounds, strict=True):
        connection.exec_driver_sql(
            f"CREATE TABLE IF NOT EXISTS {parent}{suffix} PARTITION OF {parent} FOR VALUES FROM ({low}) TO ({high})"
        )
    connection.execute(CreateTable(tables_of(suffix).sources, if_not_exists=True))


def drop_partition(connection: Connection, day: str) -> None:
    """Drop the tables of a day in Postgres."""
    for table in tables_of(suffix_of(day)):
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {table.name}")


def _create_indexes(connection: Connection, tables: DayTables) -> None:
    for index in sorted(tables.rows.indexes | tables.series.indexes, key=lambda index: str(index.name)):
        connection.execute(CreateIndex(index, if_not_exists=True))
