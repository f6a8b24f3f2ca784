"""Leases of rows in the state database: one holder works on a row, and another takes it over when that one is silent.

A holder raises the beat of its rows. Another one takes a row over when it has seen no new beat for some seconds of its
own monotonic clock. So neither clocks that differ nor clocks that jump matter. A holder does not notice at once that it
was replaced: each of its changes names it, and changes nothing then.
"""

import secrets
from collections.abc import Callable, Collection
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Table, select, update

FREE: Final = ""
"""The holder of a free row."""


class Leases:
    """The rows of one table as one holder sees them.

    The table has the columns `holder` (text) and `beat` (integer). It may have `token`, an integer that grows with each
    holder: then a holder that has given a row up, and has taken it again, is another one. Each connection is of a
    transaction that excludes other writers.
    """

    def __init__(
        self, table: Table, clock: Callable[[], float], takeover: float, *, only: ColumnElement[bool] | None = None
    ) -> None:
        """`takeover`: seconds without a beat after which a holder is replaced. `only`: the rows that can be held."""
        self.holder = secrets.token_hex(16)
        self._table = table
        self._clock = clock
        self._takeover = takeover
        self._only = () if only is None else (only,)
        self._key = [column.name for column in table.primary_key]
        self._seen: dict[tuple[Any, ...], tuple[tuple[Any, ...], float]] = {}

    def hold(self, connection: Connection, *key: object) -> bool:
        """Raise the beat of an own row, or take the row if that is possible. Returns whether it is this holder's."""
        if self.beat(connection, *key):
            return True
        row = connection.execute(select(self._table).where(*self._at(key), *self._only)).one_or_none()
        return row is not None and self.may_take(row) and self.take(connection, row)

    def may_take(self, row: Any) -> bool:
        """Whether nobody holds a row, or another holder that is silent. Each reading of a row is a look at its beat."""
        if row.holder in (FREE, self.holder):
            return bool(row.holder == FREE)
        key, state, now = self._key_of(row), (row.holder, row.beat), self._clock()
        seen, since = self._seen.get(key, (None, now))
        if seen != state:
            self._seen[key] = state, now
            return False
        return now - since >= self._takeover

    def take(self, connection: Connection, row: Any) -> bool:
        """Become the holder of a row. Returns False if it has changed since it was read."""
        same = (self._table.c.holder == row.holder, self._table.c.beat == row.beat)
        values = {"holder": self.holder, "beat": row.beat + 1}
        if "token" in self._table.c:
            values["token"] = row.token + 1
        change = update(self._table).where(*self._at(self._key_of(row)), *same, *self._only)
        return connection.execute(change.values(values)).rowcount > 0

    def beat(self, connection: Connection, *key: object, token: int | None = None, **values: object) -> bool:
        """Raise the beat, and set other columns. Returns False, and changes nothing, if the row has another holder."""
        change = update(self._table).where(*self._own(key, token))
        return connection.execute(change.values(beat=self._table.c.beat + 1, **values)).rowcount > 0

    def release(self, connection: Connection, *key: object, token: int | None = None) -> None:
        """Let another holder take the row at once."""
        connection.execute(update(self._table).where(*self._own(key, token)).values(holder=FREE))

    def forget_others(self, keys: Collection[tuple[Any, ...]]) -> None:
        """Forget the beats of all rows but these."""
        self._seen = {key: seen for key, seen in self._seen.items() if key in keys}

    def _key_of(self, row: Any) -> tuple[Any, ...]:
        return tuple(getattr(row, name) for name in self._key)

    def _at(self, key: tuple[Any, ...]) -> list[ColumnElement[bool]]:
        return [self._table.c[name] == value for name, value in zip(self._key, key, strict=True)]

    def _own(self, key: tuple[Any, ...], token: int | None) -> list[ColumnElement[bool]]:
        fence = [] if token is None else [self._table.c.token == token]
        return [*self._at(key), self._table.c.holder == self.holder, *fence, *self._only]
