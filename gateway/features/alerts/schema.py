"""The table of alerts in the state database, created on first use."""

from sqlalchemy import BigInteger, Column, Connection, Double, Index, Integer, MetaData, String, Table, Text
from sqlalchemy.schema import CreateIndex, CreateTable

from gateway.state.database import exclude_schema_changes

_LOCK = 0x68656164616C7274
"""The Postgres advisory lock under which the table is created: an arbitrary number."""
# `next_at` is the time of the next attempt; null after the last. `outcome` is empty, `delivered` or `dropped`.
alerts = Table(
    "budget_alerts",
    MetaData(),
    Column("id", String(64), primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("team", String(128), nullable=False),
    Column("budget", Text, nullable=False),
    Column("begin", BigInteger, nullable=False),
    Column("end", BigInteger, nullable=False),
    Column("threshold", Double, nullable=False),
    Column("spent", Text, nullable=False),
    Column("currency", String(8), nullable=False),
    Column("webhook", String(128), nullable=False),
    Column("at", Double, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("next_at", Double),
    Column("outcome", String(16), nullable=False),
)
_INDEXES = (
    Index("budget_alerts_next", alerts.c.next_at),
    Index("budget_alerts_tenant", alerts.c.tenant, alerts.c.at),
)


def create_tables(connection: Connection) -> None:
    """Create the missing table. Several processes may try at once."""
    exclude_schema_changes(connection, _LOCK)
    connection.execute(CreateTable(alerts, if_not_exists=True))
    for index in _INDEXES:
        connection.execute(CreateIndex(index, if_not_exists=True))
