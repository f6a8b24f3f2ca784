"""Databases of earlier releases open as they are, and get what they lack."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column, Connection, Double, Integer, LargeBinary, String, Table, inspect, select
from sqlalchemy.types import TypeEngine

from gateway.auth.schema import KEYS, state
from gateway.auth.state import StateDatabase
from gateway.state import schema
from gateway.state.database import open_engine
from gateway.state.errors import StoreMismatch
from gateway.state.schema import SCHEMA_VERSION, TableGroup, complete, exclude_schema_changes, missing
from tests.support.table_groups import every_group

PEPPER = b"p" * 32
CREATED = Path(__file__).parents[2] / "golden" / "files" / "tables.txt"
"""The statements that create the tables. They change only with the release."""
GROUPS = every_group()
FEATURES = [group for group in GROUPS if group is not KEYS]
TABLES = [table for group in GROUPS for table in group.metadata.sorted_tables]
ADDED = [
    pytest.param(group, column, id=f"{column.table.name}.{column.name}")
    for group in FEATURES
    for table in group.metadata.sorted_tables
    for column in table.c
    if column.server_default is not None and not column.primary_key
]


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    engine = open_engine(url)
    with engine.begin() as connection:
        yield connection
    engine.dispose()


def value_of(type_: TypeEngine[Any]) -> object:
    if isinstance(type_, String):
        return "{}"
    return 1.5 if isinstance(type_, Double) else b"x" if isinstance(type_, LargeBinary) else 1


def row_of(table: Table) -> dict[str, object]:
    return {column.name: value_of(column.type) for column in table.c}


def structure(connection: Connection) -> dict[str, object]:
    """The columns and indexes of all tables."""
    seen = inspect(connection)
    return {
        name: (
            [(column["name"], str(column["type"]), column["nullable"]) for column in seen.get_columns(name)],
            sorted(str(index["name"]) for index in seen.get_indexes(name)),
            seen.get_pk_constraint(name)["constrained_columns"],
        )
        for name in seen.get_table_names()
    }


def rows(connection: Connection) -> dict[str, list[tuple[Any, ...]]]:
    return {table.name: [tuple(row) for row in connection.execute(select(table))] for table in TABLES}


def test_a_database_of_this_release_stays_as_it_is(any_database: str) -> None:
    with connected(any_database) as connection:
        for line in CREATED.read_text().splitlines():
            dialect, _, statement = line.partition(": ")
            if dialect == connection.dialect.name:
                connection.exec_driver_sql(statement)
        for table in TABLES:
            connection.execute(table.insert().values(row_of(table)))
        connection.execute(state.update().values(schema_version=SCHEMA_VERSION))
        # Without a key, the database takes over any pepper.
        connection.execute(KEYS.metadata.tables["keys"].delete())
        connection.execute(KEYS.metadata.tables["audit"].delete())
        before, stored = structure(connection), rows(connection)
    StateDatabase(any_database, PEPPER, *FEATURES).close()
    with connected(any_database) as connection:
        assert structure(connection) == before
        after = rows(connection)
    counted = {"keys_state", "stored_bytes"}  # the check of the pepper, and the rows that are counted from now on
    assert {name: after[name] for name in after if name not in counted} == {
        name: stored[name] for name in stored if name not in counted
    }


def test_every_new_database_is_complete(any_database: str) -> None:
    database = StateDatabase(any_database, PEPPER, *FEATURES)
    with database.transaction() as connection:
        assert missing(connection, TABLES) == []
        assert structure(connection).keys() == {table.name for table in TABLES}
    database.close()


@pytest.mark.parametrize(("group", "column"), ADDED)
def test_a_table_of_an_earlier_release_gets_a_column(any_database: str, group: TableGroup, column: Column[Any]) -> None:
    table = column.table
    assert isinstance(table, Table)
    with connected(any_database) as connection:
        group.prepare(connection)
    with connected(any_database) as connection:
        for index in table.indexes:
            connection.exec_driver_sql(f"DROP INDEX {index.name}")
        for trigger in ("insert", "update", "delete") if connection.dialect.name == "sqlite" else ():
            connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS {table.name}_{trigger}_bytes")
        connection.exec_driver_sql(f'ALTER TABLE {table.name} DROP COLUMN "{column.name}"')
        assert missing(connection, [table]) == [column]
        row = row_of(table)
        del row[column.name]
        names = ", ".join(f'"{name}"' for name in row)
        connection.exec_driver_sql(f"INSERT INTO {table.name} ({names}) VALUES ({', '.join(map(repr, row.values()))})")
    with connected(any_database) as connection:
        group.prepare(connection)
    with connected(any_database) as connection:
        assert missing(connection, [table]) == []
        assert {str(index["name"]) for index in inspect(connection).get_indexes(table.name)} >= {
            str(index.name) for index in table.indexes
        }
        stored = connection.execute(select(table)).one()._mapping
    default = "" if isinstance(column.type, String) else 0
    assert {**stored} == {**row, column.name: default}


def test_a_table_that_cannot_be_completed(any_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "groups", {})
    group = TableGroup("of another product")
    table = group.table("batches_of_bread", Column("id", Integer, primary_key=True), Column("flour", String(9)))
    with connected(any_database) as connection:
        group.prepare(connection)
    table.append_column(Column("salt", Integer, nullable=False))
    with connected(any_database) as connection:
        exclude_schema_changes(connection)
        with pytest.raises(StoreMismatch, match="the table batches_of_bread has no column salt"):
            complete(connection, [table])


@pytest.mark.realtime
def test_many_openings_at_once(any_database: str) -> None:
    errors: list[BaseException] = []

    def open_all() -> None:
        try:
            StateDatabase(any_database, PEPPER, *FEATURES).close()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=open_all) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
