"""How much of each journal a database has, and sums that grow: written in one transaction, so that a repeated import
changes nothing."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, select, update

from gateway.state.statements import insert_into


def move_offset(connection: Connection, sources: Table, source: str, end: int) -> int:
    """Note that a file is imported up to an end. Returns up to where it was before; the further lines are new.

    Another writer of the same file waits here until this transaction ends.
    """
    first = insert_into(connection, sources).on_conflict_do_nothing(index_elements=["source"])
    connection.execute(first, {"source": source, "offset": 0})
    own = sources.c.source == source
    before = int(connection.execute(select(sources.c.offset).where(own).with_for_update()).scalar_one())
    if end > before:
        connection.execute(update(sources).where(own).values(offset=end))
    return before


def add_sums(connection: Connection, table: Table, rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> None:
    """Add sums to the rows of the same keys."""
    statement = insert_into(connection, table)
    summed = {name: table.c[name] + statement.excluded[name] for name in names}
    keys = [column.name for column in table.primary_key]
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=summed), list(rows))
