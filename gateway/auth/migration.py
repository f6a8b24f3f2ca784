"""The state database's tables: made the first time, later brought up to this release's, whole or not at all."""

import secrets

from sqlalchemy import Connection, insert, inspect, select, update
from sqlalchemy.schema import CreateColumn, CreateTable

from gateway.auth.database import use_write_ahead_log
from gateway.auth.schema import APPEND_ONLY, SCHEMA_VERSION, audit, keys, state

_LOCK = 0x6865616472616365
"""Postgres's name for the lock under which tables are made: any number that nobody else uses."""


def version_of(connection: Connection) -> int | None:
    """The schema that is there, 0 for a state table without its row; None for no tables at all."""
    if not inspect(connection).has_table(state.name):
        return None
    return connection.execute(select(state.c.schema_version)).scalar_one_or_none() or 0


def migrate(connection: Connection, pepper_check: str) -> None:
    """Make or change what is missing, alone. A schema that is newer, or unknown, is left as it is."""
    if connection.dialect.name == "sqlite":
        use_write_ahead_log(connection)
        # Python's driver opens no transaction for DDL by itself.
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    else:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
    version = version_of(connection)
    if version is None:
        _make(connection, pepper_check)
    elif version == 1:
        _from_1_to_2(connection)


def _make(connection: Connection, pepper_check: str) -> None:
    for table in (keys, state):
        connection.execute(CreateTable(table))
    _make_audit(connection)
    # A random start: a database that was deleted and made anew is then noticed as a change.
    first = {"id": 1, "schema_version": SCHEMA_VERSION, "epoch": secrets.randbits(48), "pepper_check": pepper_check}
    connection.execute(insert(state).values(first))


def _from_1_to_2(connection: Connection) -> None:
    """Roles, scopes and labels of keys; the audit log. Gateways of the older release keep the keys they know."""
    for column in (keys.c.role, keys.c.scopes, keys.c.labels):
        definition = CreateColumn(column).compile(dialect=connection.dialect)
        connection.exec_driver_sql(f"ALTER TABLE {keys.name} ADD COLUMN {definition}")
    _make_audit(connection)
    connection.execute(update(state).values(schema_version=2, epoch=state.c.epoch + 1))


def _make_audit(connection: Connection) -> None:
    connection.execute(CreateTable(audit))
    for statement in APPEND_ONLY[connection.dialect.name]:
        connection.exec_driver_sql(statement)
