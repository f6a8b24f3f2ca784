"""Creates the tables of the state database."""

import secrets

from sqlalchemy import Connection, insert, inspect, select
from sqlalchemy.schema import CreateTable

from gateway.auth.schema import APPEND_ONLY, SCHEMA_VERSION, audit, keys, state, team_keys, teams
from gateway.state.database import exclude_schema_changes

_LOCK = 0x6865616472616365
"""The Postgres advisory lock under which the tables are created: an arbitrary number."""


def version_of(connection: Connection) -> int | None:
    """The version of the database's schema, 0 for a state table without its row, None without tables."""
    if not inspect(connection).has_table(state.name):
        return None
    return connection.execute(select(state.c.schema_version)).scalar_one_or_none() or 0


def create_tables(connection: Connection, pepper_check: str) -> None:
    """Create the tables, all or none, unless another process has done it. Never changes an existing schema."""
    exclude_schema_changes(connection, _LOCK)
    if version_of(connection) is not None:
        return
    for table in (keys, state, audit):
        connection.execute(CreateTable(table))
    for statement in APPEND_ONLY[connection.dialect.name]:
        connection.exec_driver_sql(statement)
    # The epoch starts at random, so that a deleted and recreated database is noticed as a change.
    first = {"id": 1, "schema_version": SCHEMA_VERSION, "epoch": secrets.randbits(48), "pepper_check": pepper_check}
    connection.execute(insert(state).values(first))


def has_tables_of_teams(connection: Connection) -> bool:
    """Whether the database has the tables of teams. A database of an earlier release lacks them."""
    return inspect(connection).has_table(team_keys.name)


def add_tables_of_teams(connection: Connection) -> None:
    """Create the tables of teams. Several processes may try at once."""
    exclude_schema_changes(connection, _LOCK)
    for table in (teams, team_keys):
        connection.execute(CreateTable(table, if_not_exists=True))
