"""The table of the versions of the configuration, created on first use."""

from sqlalchemy import Column, Connection, Double, Index, Integer, LargeBinary, MetaData, String, Table, Text
from sqlalchemy.schema import CreateIndex, CreateTable

from gateway.state.database import exclude_schema_changes

_metadata = MetaData()
_LOCK = 0x6865616463666776
"""The Postgres advisory lock under which the table is created: an arbitrary number."""
versions = Table(
    "config_versions",
    _metadata,
    Column("version", Integer, primary_key=True, autoincrement=True),
    Column("file", Text, nullable=False),
    Column("at", Double, nullable=False),
    Column("revision", String(64), nullable=False),
    Column("cause", String(32), nullable=False),
    Column("actor", Text, nullable=False),
    # Compressed, then encrypted under a key that is derived from the pepper.
    Column("content", LargeBinary, nullable=False),
)
_by_file = Index("config_versions_file", versions.c.file, versions.c.version)


def create_tables(connection: Connection) -> None:
    """Create what is missing. Several processes may try at once."""
    exclude_schema_changes(connection, _LOCK)
    connection.execute(CreateTable(versions, if_not_exists=True))
    connection.execute(CreateIndex(_by_file, if_not_exists=True))
