"""The tables of shadows in the state database, created on first use."""

from sqlalchemy import Column, Connection, Double, MetaData, String, Table, Text
from sqlalchemy.schema import CreateTable

from gateway.state.database import exclude_schema_changes

_metadata = MetaData()
_LOCK = 0x6865616473686477
"""The Postgres advisory lock under which the table is created: an arbitrary number."""
# One row for each comparison: gateways with two files, as during a reload, count each for its own.
shadows = Table(
    "shadows",
    _metadata,
    Column("name", String(256), primary_key=True),
    Column("identity", String(64), primary_key=True),
    Column("updated", Double, nullable=False),
    # A JSON object, read and written as a whole.
    Column("progress", Text, nullable=False),
)
samples = Table(
    "shadow_samples",
    _metadata,
    Column("name", String(256), primary_key=True),
    Column("identity", String(64), primary_key=True),
    Column("at", Double, primary_key=True),
    Column("id", String(128), primary_key=True),
    # A JSON object with redacted texts.
    Column("sample", Text, nullable=False),
)


def create_tables(connection: Connection) -> None:
    """Create the tables that are missing. Several processes may try at once."""
    exclude_schema_changes(connection, _LOCK)
    for table in (shadows, samples):
        connection.execute(CreateTable(table, if_not_exists=True))
