"""The tables of the state database: created on first use, and completed where an earlier release created them.

Each feature has a group of tables. A release may add tables, indexes and columns with a default to a group: `prepare`
adds what is missing, so that no database needs a migration, and the earlier release works on with it. Any other change
raises `SCHEMA_VERSION`.
"""

from collections.abc import Callable, Iterable
from typing import Any

from sqlalchemy import Column, Connection, MetaData, Table, inspect
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateTable, SchemaItem

from gateway.state.database import use_write_ahead_log
from gateway.state.errors import StoreMismatch

SCHEMA_VERSION = 2
"""The version of all tables together, which the database stores. A release refuses a database of another version."""
_LOCK = 0x6865616472616365
"""The Postgres advisory lock under which tables are created: an arbitrary number."""
groups: "dict[str, TableGroup]" = {}
"""All groups whose modules are imported, by name."""


class TableGroup:
    """The tables of one feature. Those of two groups have different names."""

    def __init__(self, name: str, then: Callable[[Connection], None] | None = None) -> None:
        """`then` ends each `prepare`: it adds the rows and triggers that the tables need."""
        assert name not in groups, f"two groups of tables are named {name}"
        groups[name] = self
        self.metadata = MetaData()
        self._then = then

    def table(self, name: str, *items: SchemaItem, **options: Any) -> Table:
        """Add a table to the group. A column that an earlier release does not have needs a default of the server."""
        return Table(name, self.metadata, *items, **options)

    def prepare(self, connection: Connection) -> None:
        """Add what is missing, all or nothing. The first statement of a transaction. Several processes may try at once.

        Raises `StoreMismatch` for a table that cannot be completed.
        """
        exclude_schema_changes(connection)
        complete(connection, self.metadata.sorted_tables)
        if self._then is not None:
            self._then(connection)


def exclude_schema_changes(connection: Connection) -> None:
    """Begin the transaction that creates tables. Other processes that do the same wait until it ends."""
    if connection.dialect.name == "sqlite":
        use_write_ahead_log(connection)
        # Python's driver opens no transaction for DDL. SQLite has one lock for the whole file.
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    else:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")


def missing(connection: Connection, tables: Iterable[Table]) -> list[Table | Column[Any]]:
    """The tables that the database does not have, and the columns that its tables do not have."""
    expected = {table.name: table for table in tables}
    present = inspect(connection).get_multi_columns(filter_names=list(expected))
    columns = {name: {str(column["name"]) for column in entries} for (_, name), entries in present.items()}
    absent: list[Table | Column[Any]] = []
    for name, table in expected.items():
        absent += [table] if name not in columns else [each for each in table.c if each.name not in columns[name]]
    return absent


def complete(connection: Connection, tables: Iterable[Table]) -> None:
    """Add missing tables, columns and indexes. The transaction must have begun with `exclude_schema_changes`."""
    tables = list(tables)
    for item in missing(connection, tables):
        if isinstance(item, Table):
            # A process of an earlier release has other locks, and may be faster.
            connection.execute(CreateTable(item, if_not_exists=True))
            continue
        if item.server_default is None and not item.nullable:
            raise StoreMismatch(f"the table {item.table.name} has no column {item.name}: use another database")
        definition = CreateColumn(item).compile(dialect=connection.dialect)
        connection.exec_driver_sql(f"ALTER TABLE {item.table.name} ADD COLUMN {definition}")
    # What exists is not created again, not even with IF NOT EXISTS: Postgres demands the owner of the table for it.
    present = inspect(connection).get_multi_indexes(filter_names=[table.name for table in tables])
    names = {entry["name"] for entries in present.values() for entry in entries}
    for table in tables:
        for index in sorted(table.indexes, key=lambda each: str(each.name)):
            if index.name not in names:
                connection.execute(CreateIndex(index, if_not_exists=True))
