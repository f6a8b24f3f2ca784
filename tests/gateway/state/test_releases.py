"""A database of every release opens with this one, keeps its rows, and serves the earlier release again."""

from typing import Any

import pytest
from sqlalchemy import Connection, Double, LargeBinary, MetaData, String, Table, insert, select

from gateway.auth.audit import Actor
from gateway.auth.keys import digest, id_of, new_key
from gateway.auth.schema import KEYS
from gateway.auth.state import StateDatabase
from gateway.auth.store import KeyStore
from gateway.state.database import open_engine
from gateway.state.errors import StoreMismatch
from gateway.state.schema import missing
from tests.golden.outside import tables
from tests.golden.schemas import FILE, Release, releases, written
from tests.support.table_groups import every_group

PEPPER = b"p" * 32
CHECK = digest(PEPPER, "headrace pepper check").hex()
RELEASES = releases(FILE.read_text())
FEATURES = [group for group in every_group() if group is not KEYS]
TABLES = [table for group in every_group() for table in group.metadata.sorted_tables]
COUNTED = {"stored_bytes"}
"""Tables whose rows a trigger changes."""
EACH = pytest.mark.parametrize("release", RELEASES, ids=lambda release: f"release {release.number}")


def value_of(column: Any, number: int) -> object:
    if isinstance(column.type, String):
        return str(number)
    if isinstance(column.type, LargeBinary):
        return b"x"
    return float(number) if isinstance(column.type, Double) else number


def row_of(table: Table, number: int) -> dict[str, object]:
    return {column.name: value_of(column, number) for column in table.c}


def reflected(connection: Connection) -> dict[str, Table]:
    metadata = MetaData()
    metadata.reflect(connection)
    return dict(metadata.tables)


class Old:
    """A database that a release has written: one row in each table, and one valid key."""

    def __init__(self, url: str, release: Release) -> None:
        self.url = url
        self.key = new_key()
        self.engine = open_engine(url)
        with self.engine.begin() as connection:
            for statement in release.statements:
                dialect, _, text = statement.partition(": ")
                if dialect == connection.dialect.name:
                    connection.exec_driver_sql(text)
            self.tables = reflected(connection)
            for table in self.tables.values():
                if table.name not in ("keys", "keys_state", "audit"):
                    connection.execute(insert(table).values(row_of(table, 1)))
            key = {"id": self.key.id, "tenant": "acme", "label": "", "created_at": 1.0}
            connection.execute(insert(self.tables["keys"]).values(**key, hash=digest(PEPPER, self.key.plaintext).hex()))
            state = {"id": 1, "schema_version": release.schema, "epoch": 5, "pepper_check": CHECK}
            connection.execute(insert(self.tables["keys_state"]).values(state))
            self.before = self.rows(connection)

    def rows(self, connection: Connection) -> dict[str, list[Any]]:
        """The rows of all tables, in the columns of the release."""
        excluded = {"keys_state", "audit", *COUNTED}
        return {
            name: [tuple(row) for row in connection.execute(select(table))]
            for name, table in self.tables.items()
            if name not in excluded
        }


@EACH
def test_a_database_of_any_release_is_upgraded_with_its_rows(any_database: str, release: Release) -> None:
    old = Old(any_database, release)
    StateDatabase(any_database, PEPPER, *FEATURES).close()
    with old.engine.begin() as connection:
        assert missing(connection, TABLES) == []
        assert old.rows(connection) == old.before
    old.engine.dispose()
    store = KeyStore(any_database, PEPPER)
    live = store.read_live(2.0)
    ((key_id, record),) = live.records.items()
    assert key_id == id_of(old.key.plaintext)
    assert record.digest == digest(PEPPER, old.key.plaintext)
    store.revoke(old.key.id, by=Actor("tests"), now=3.0)
    assert store.verify_audit().problem == ""
    store.close()


@EACH
def test_the_earlier_release_works_on_after_an_upgrade_within_its_schema(any_database: str, release: Release) -> None:
    old = Old(any_database, release)
    StateDatabase(any_database, PEPPER, *FEATURES).close()
    with old.engine.begin() as connection:
        version = connection.execute(select(old.tables["keys_state"].c.schema_version)).scalar_one()
        if version == release.schema:  # else it refuses the database
            for table in old.tables.values():
                if table.name != "keys_state":
                    connection.execute(insert(table).values(row_of(table, 2)))
        else:
            assert release.schema < version
    old.engine.dispose()


def test_another_pepper_upgrades_nothing(any_database: str) -> None:
    old = Old(any_database, RELEASES[0])
    with pytest.raises(StoreMismatch, match="another pepper"):
        StateDatabase(any_database, b"q" * 32)
    with old.engine.begin() as connection:
        assert reflected(connection).keys() == old.tables.keys()
        assert old.rows(connection) == old.before
    old.engine.dispose()


def test_the_tables_of_this_release_are_the_last() -> None:
    assert set(RELEASES[-1].statements) == set(tables().splitlines()), "run: python -m tests.golden"
    assert written(RELEASES) == FILE.read_text()
