"""Counts what tenants store: triggers of the state database add the size of each row that is written or deleted.

So the count changes in the transaction of the rows, for every statement of every process and release. SQLite has one
writer, and one row for each tenant. In Postgres each transaction has a row of its own, so that no writer waits for
another one, and `room.py` folds them into one.
"""

# ruff: noqa: S608 - the names in statements are those of tables in the code
from typing import NamedTuple

from sqlalchemy import BigInteger, Column, Connection, String, Table

from gateway.state.schema import TableGroup, complete

ROW_BYTES = 256
"""Bytes that count for each row, beside its contents: keys, times, and the indexes."""
QUOTA = TableGroup("stored bytes")
stored_bytes = QUOTA.table(
    "stored_bytes",
    Column("tenant", String(128), primary_key=True),
    # 0 in SQLite, the id of the transaction in Postgres.
    Column("part", BigInteger, primary_key=True, autoincrement=False),
    Column("bytes", BigInteger, nullable=False),
)
_ADD = "ON CONFLICT (tenant, part) DO UPDATE SET bytes = stored_bytes.bytes + excluded.bytes"


class Metered(NamedTuple):
    """A table with a column `tenant`: the columns of texts that count, and those that are numbers of bytes."""

    table: Table
    texts: tuple[str, ...]
    numbers: tuple[str, ...] = ()

    def size(self, dialect: str, row: str = "") -> str:
        """SQL for the size of a row. `row` is a prefix such as ``NEW.``."""
        sizes = [text_size(dialect, f"{row}{name}") for name in self.texts]
        return " + ".join([str(ROW_BYTES), *sizes, *(f"{row}{name}" for name in self.numbers)])


def text_size(dialect: str, column: str) -> str:
    """SQL for the bytes of a text in UTF-8."""
    return f"length(CAST({column} AS BLOB))" if dialect == "sqlite" else f"octet_length({column})"


def meter(connection: Connection, *tables: Metered) -> None:
    """Create the missing triggers, and count the rows of a table that had none.

    The transaction must have begun with `exclude_schema_changes`.
    """
    dialect = connection.dialect.name
    complete(connection, (stored_bytes,))
    for metered in tables:
        if not _is_metered(connection, metered):
            for statement in _triggers(metered) if dialect == "sqlite" else _functions(metered):
                connection.exec_driver_sql(statement)
            part = "0" if dialect == "sqlite" else "txid_current()"
            rows = f"SELECT tenant, {part}, sum({metered.size(dialect)}) FROM {metered.table.name} WHERE 1 = 1"
            connection.exec_driver_sql(f"INSERT INTO stored_bytes {rows} GROUP BY tenant {_ADD}")


def _is_metered(connection: Connection, metered: Metered) -> bool:
    name = _name(metered, "insert")
    query = (
        f"SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND name = '{name}'"
        if connection.dialect.name == "sqlite"
        else f"SELECT 1 FROM pg_trigger WHERE tgname = '{name}' AND tgrelid = '{metered.table.name}'::regclass"
    )
    return connection.exec_driver_sql(query).first() is not None


def _name(metered: Metered, event: str) -> str:
    return f"{metered.table.name}_{event}_bytes"


def _triggers(metered: Metered) -> list[str]:
    """The triggers of SQLite, for each row."""
    new, old = metered.size("sqlite", "NEW."), metered.size("sqlite", "OLD.")
    columns = ", ".join((*metered.texts, *metered.numbers))
    events = {
        "insert": ("INSERT", "NEW", new),
        "delete": ("DELETE", "OLD", f"-({old})"),
        "update": (f"UPDATE OF {columns}", "NEW", f"{new} - ({old})"),
    }
    return [
        f"CREATE TRIGGER {_name(metered, event)} AFTER {when} ON {metered.table.name} BEGIN "
        f"INSERT INTO stored_bytes VALUES ({row}.tenant, 0, {size}) {_ADD}; END"
        for event, (when, row, size) in events.items()
    ]


def _functions(metered: Metered) -> list[str]:
    """The triggers of Postgres, for each statement: one that deletes many rows adds one row of each tenant."""
    size = metered.size("postgresql")
    made = f"SELECT tenant, {size} AS size FROM made"
    gone = f"SELECT tenant, -({size}) AS size FROM gone"
    events = {
        "insert": ("NEW TABLE AS made", made),
        "delete": ("OLD TABLE AS gone", gone),
        "update": ("OLD TABLE AS gone NEW TABLE AS made", f"{made} UNION ALL {gone}"),
    }
    statements = []
    for event, (tables, rows) in events.items():
        name = _name(metered, event)
        sums = f"SELECT tenant, txid_current(), sum(size) FROM ({rows}) AS sizes GROUP BY tenant HAVING sum(size) <> 0"
        statements += [
            f"CREATE OR REPLACE FUNCTION headrace_{name}() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN INSERT INTO stored_bytes {sums} {_ADD}; RETURN NULL; END $$",
            f"CREATE TRIGGER {name} AFTER {event.upper()} ON {metered.table.name} REFERENCING {tables} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION headrace_{name}()",
        ]
    return statements
