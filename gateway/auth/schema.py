"""The tables of keys, teams and the audit log; how the first ones of a database are created, and upgraded."""

import secrets

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    String,
    Text,
    insert,
    inspect,
    select,
    update,
)

from gateway.state.schema import SCHEMA_VERSION, TableGroup, complete, exclude_schema_changes

KEYS = TableGroup("keys")
TEAMS = TableGroup("teams")
# Times are Unix seconds: SQLite has no type for a time, and each is only compared with a clock's value.
keys = KEYS.table(
    "keys",
    Column("id", String(12), primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("label", String(100), nullable=False),
    Column("hash", String(64), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("revoked_at", Double),
    Column("replaced_by", String(12)),
    # Since schema 2. Scopes and labels are JSON objects, or nothing.
    Column("role", String(16), nullable=False, server_default="user"),
    Column("scopes", Text),
    Column("labels", Text),
    # The mark of the pepper that the hash depends on, if it is not the present one.
    Column("pepper", String(16), nullable=False, server_default=""),
    # The first key of a rotated one's lineage; null for a key that replaces none, and from an earlier release.
    Column("lineage", String(12)),
    # Null unless the lineage of the key is blocked, which an operator may take back.
    Column("blocked_at", Double),
)
# The newest keys of a tenant, page by page.
Index("keys_of_tenant", keys.c.tenant, keys.c.created_at, keys.c.id)
# Limits are JSON, as in the file.
teams = TEAMS.table(
    "teams",
    Column("tenant", String(128), primary_key=True),
    Column("name", String(128), primary_key=True),
    Column("limits", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("changed_at", Double, nullable=False),
)
# The team of each issued key that has one.
team_keys = TEAMS.table(
    "team_keys",
    Column("key_id", String(12), primary_key=True),
    Column("team", String(128), nullable=False),
)
# The newest changes of keys and teams: `changes.py` reads them. The rows of one change have one epoch.
key_changes = TEAMS.table(
    "key_changes",
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("key_id", String(12), nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("previous", BigInteger, nullable=False),
)
# One row: `epoch` moves with every change of a key, `pepper_check` detects a wrong pepper before any key is refused.
# Every writer updates this row first, and so waits for the writer before it.
state = KEYS.table(
    "keys_state",
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("schema_version", Integer, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("pepper_check", String(64), nullable=False),
)
# Since schema 2. Counted without a gap from 1; each row's digest covers the row and the digest before it.
audit = KEYS.table(
    "audit",
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("actor", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("peer", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("previous", String(64), nullable=False),
    Column("digest", String(64), nullable=False),
)

# A second protection beside the digests: the database refuses what this product never does.
APPEND_ONLY = {
    "sqlite": (
        "CREATE TRIGGER audit_update BEFORE UPDATE ON audit BEGIN "
        "SELECT RAISE(ABORT, 'the audit log is append-only'); END",
        "CREATE TRIGGER audit_delete BEFORE DELETE ON audit BEGIN "
        "SELECT RAISE(ABORT, 'the audit log is append-only'); END",
        # INSERT OR REPLACE deletes without a call of the trigger above.
        "CREATE TRIGGER audit_replace BEFORE INSERT ON audit WHEN EXISTS (SELECT 1 FROM audit WHERE seq = NEW.seq) "
        "BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END",
    ),
    "postgresql": (
        "CREATE OR REPLACE FUNCTION headrace_audit_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'the audit log is append-only'; END $$",
        "CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit "
        "FOR EACH STATEMENT EXECUTE FUNCTION headrace_audit_append_only()",
    ),
}


def version_of(connection: Connection) -> int | None:
    """The version of the database's schema, 0 for a state table without its row, None without tables."""
    if not inspect(connection).has_table(state.name):
        return None
    return connection.execute(select(state.c.schema_version)).scalar_one_or_none() or 0


def create_tables(connection: Connection, pepper_check: str) -> None:
    """Create the tables, all or none, unless another process has done it. Never changes an existing schema."""
    exclude_schema_changes(connection)
    if version_of(connection) is not None:
        return
    KEYS.metadata.create_all(connection, checkfirst=False)
    _protect(connection)
    # The epoch starts at random, so that a deleted and recreated database is noticed as a change.
    first = {"id": 1, "schema_version": SCHEMA_VERSION, "epoch": secrets.randbits(48), "pepper_check": pepper_check}
    connection.execute(insert(state).values(first))


def upgrade_tables(connection: Connection) -> None:
    """Upgrade tables of schema 1, all or none, unless another process has done it. Keys stay as they are.

    A process of the earlier release refuses the new schema: it continues with the keys in its memory.
    """
    exclude_schema_changes(connection)
    if version_of(connection) != 1:
        return
    complete(connection, KEYS.metadata.sorted_tables)
    _protect(connection)
    # Not `epoch + 1`: no earlier value of this database may stand for the new state.
    connection.execute(update(state).values(schema_version=SCHEMA_VERSION, epoch=secrets.randbits(48)))


def _protect(connection: Connection) -> None:
    for statement in APPEND_ONLY[connection.dialect.name]:
        connection.exec_driver_sql(statement)
