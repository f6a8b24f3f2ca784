"""The tables of rollouts in the state database, created on first use."""

from sqlalchemy import BigInteger, Column, Connection, Integer, MetaData, String, Table, Text, insert, select
from sqlalchemy.schema import CreateTable

from gateway.auth.database import use_write_ahead_log

_metadata = MetaData()
_LOCK = 0x6865616472726F6C
"""The Postgres advisory lock under which the tables are created: an arbitrary number."""
# The state of a rollout is a JSON object: it is read and written as a whole, in a transaction that excludes all others.
rollouts = Table(
    "rollouts",
    _metadata,
    Column("name", String(128), primary_key=True),
    Column("progress", Text, nullable=False),
)
subjects = Table(
    "rollout_subjects",
    _metadata,
    Column("rollout", String(128), primary_key=True),
    Column("generation", Integer, primary_key=True),
    # The key of an event, or nothing for the assignment.
    Column("event", String(128), primary_key=True),
    Column("subject", BigInteger, primary_key=True),
)
# One row: the gateway that decides, and a number that it raises each time.
lease = Table(
    "rollout_lease",
    _metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("holder", String(64), nullable=False),
    Column("beat", BigInteger, nullable=False),
)


def create_tables(connection: Connection) -> None:
    """Create the tables that are missing. Several processes may try at once."""
    if connection.dialect.name == "sqlite":
        use_write_ahead_log(connection)
        # Python's driver opens no transaction for DDL.
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    else:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
    for table in (rollouts, subjects, lease):
        connection.execute(CreateTable(table, if_not_exists=True))
    if connection.execute(select(lease.c.id)).first() is None:
        connection.execute(insert(lease).values(id=1, holder="", beat=0))
