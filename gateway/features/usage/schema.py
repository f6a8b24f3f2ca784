"""The tables of usage in the state database, created on first use."""

from sqlalchemy import BigInteger, Column, Connection, Double, Index, Integer, MetaData, String, Table
from sqlalchemy.schema import CreateIndex, CreateTable

from gateway.features.usage.labels import COUNTERS
from gateway.state.database import add_missing_columns, exclude_schema_changes

_metadata = MetaData()
_LOCK = 0x6865616475736167
"""The Postgres advisory lock under which the tables are created: an arbitrary number."""


def _labels() -> list["Column[str]"]:
    lengths = {"tenant": 128, "key": 512, "model": 512, "arm": 512, "currency": 8, "team": 128}
    return [Column(name, String(length), nullable=False, server_default="") for name, length in lengths.items()]


def _counters() -> list["Column[int]"]:
    return [Column(name, BigInteger, nullable=False) for name in COUNTERS]


# Amounts that only grow. Two gateways never write the same row: `source` is a writer, or a log of a batch.
hours = Table(
    "usage_hours",
    _metadata,
    Column("source", String(64), primary_key=True),
    Column("slot", Integer, primary_key=True),
    Column("hour", BigInteger, nullable=False),  # Unix time // 3600
    Column("day", String(10), nullable=False),  # YYYY-MM-DD in UTC
    *_labels(),
    *_counters(),
)
# How much of each journal is in `hours`: moved in the transaction that adds to it.
sources = Table(
    "usage_sources",
    _metadata,
    Column("source", String(64), primary_key=True),
    Column("offset", BigInteger, nullable=False),
    Column("at", Double, nullable=False, server_default="0"),
)
days = Table(
    "usage_days",
    _metadata,
    Column("day", String(10), nullable=False),
    *_labels(),
    *_counters(),
    # Billions of picos beyond `picos`: a day may exceed 63 bits.
    Column("picos_high", BigInteger, nullable=False, server_default="0"),
)
# The days whose sums are in `usage_days`. A row of another hour of the day deletes its entry here.
summed = Table(
    "usage_summed_days",
    _metadata,
    Column("day", String(10), primary_key=True),
    Column("at", Double, nullable=False),
)
_INDEXES = (
    Index("usage_hours_day", hours.c.day, hours.c.tenant),
    Index("usage_days_day", days.c.day, days.c.tenant),
    Index("usage_days_tenant", days.c.tenant, days.c.day),
)


def create_tables(connection: Connection) -> None:
    """Create the missing tables. Several processes may try at once."""
    exclude_schema_changes(connection, _LOCK)
    for table in (hours, sources, days, summed):
        connection.execute(CreateTable(table, if_not_exists=True))
        add_missing_columns(connection, table)
    for index in _INDEXES:
        connection.execute(CreateIndex(index, if_not_exists=True))
