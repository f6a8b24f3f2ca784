"""How much of each journal a database has, and sums that grow: written in one transaction, so that a repeated import
changes nothing."""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, select, update

from gateway.state.statements import in_parts, insert_into

RETAINED = 3600.0
"""Seconds for which a database may lose its last changes: for so long a journal outlives its import."""


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


class Moved:
    """Up to where one writer has moved the offsets of journals, to notice a database that has lost its last changes."""

    def __init__(self) -> None:
        self._ends: dict[str, tuple[int, float]] = {}

    def note(self, source: str, end: int) -> None:
        """Note a transaction that is committed."""
        self._ends[source] = end, time.monotonic()

    def recent(self, present: Collection[str]) -> dict[str, int]:
        """The ends of the files, of those that are present, that were moved in the last `RETAINED` seconds.

        Later the database may have deleted the row of a file that is idle.
        """
        oldest = time.monotonic() - RETAINED
        self._ends = {source: (end, at) for source, (end, at) in self._ends.items() if source in present}
        return {source: end for source, (end, at) in self._ends.items() if at > oldest}

    def lost(self, connection: Connection, sources: Table, present: Collection[str]) -> set[str]:
        """The files, of those that are present, of which the database has less than before."""
        recent, stored = self.recent(present), dict[str, int]()
        for part in in_parts(list(recent)):
            rows = connection.execute(select(sources.c.source, sources.c.offset).where(sources.c.source.in_(part)))
            stored |= {row.source: row.offset for row in rows}
        return {source for source, end in recent.items() if stored.get(source, 0) < end}


def add_sums(connection: Connection, table: Table, rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> None:
    """Add sums to the rows of the same keys."""
    statement = insert_into(connection, table)
    summed = {name: table.c[name] + statement.excluded[name] for name in names}
    keys = [column.name for column in table.primary_key]
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=summed), list(rows))
