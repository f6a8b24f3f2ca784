"""The newest changes of keys and teams, so that a process reads the keys that changed, and no other.

Each change has a random epoch, and names the epoch before it. A process follows these links from the epoch that it has
read. If it cannot reach the epoch of the database, it reads all keys: the database was restored, is another one, or was
written by a release without this table.
"""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from sqlalchemy import Connection, delete, func, insert, or_, select, update

from gateway.auth.schema import key_changes, state

V = TypeVar("V")
EPOCH_BITS = 62
MOST_STORED = 10_000
"""Changes that the database has. A process that missed more reads all keys."""
MOST_READ = 1_000
"""Changes that are followed: beyond that it is cheaper to read all keys."""
TEAMS_CHANGED = ""
"""In place of a key's id."""
MOST_CHANGES = 1000
"""Changes beside the large mapping; more are merged into a copy of it."""


class Position(NamedTuple):
    """A point in the history of the keys: the epoch of the database, and the number of its newest change."""

    epoch: int
    number: int


def record_change(connection: Connection, ids: Sequence[str]) -> None:
    """Move the epoch, in a transaction that holds the writers' lock. Without `ids` it is a change of teams.

    The epoch is random and no counter: after a restore, the next change would have the number of the one that was lost.
    """
    before = connection.execute(select(state.c.epoch)).scalar_one()
    epoch, newest = secrets.randbits(EPOCH_BITS), _newest(connection)
    connection.execute(update(state).values(epoch=epoch))
    rows = [
        {"number": newest + place, "key_id": key_id, "epoch": epoch, "previous": before}
        for place, key_id in enumerate(ids or (TEAMS_CHANGED,), 1)
    ]
    connection.execute(insert(key_changes), rows)
    connection.execute(delete(key_changes).where(key_changes.c.number <= newest + len(rows) - MOST_STORED))


def position(connection: Connection, epoch: int) -> Position:
    """The position at the epoch that the database had at the begin of the transaction."""
    newest = select(func.max(key_changes.c.number)).where(key_changes.c.epoch == epoch)
    return Position(epoch, connection.execute(newest).scalar() or _newest(connection))


def changed_since(connection: Connection, seen: Position, epoch: int) -> tuple[Position, frozenset[str]] | None:
    """The position of `epoch`, and the keys that changed since an earlier one; None if they cannot be known."""
    query = select(key_changes).where(key_changes.c.number > seen.number).order_by(key_changes.c.number)
    at, number, ids = seen.epoch, seen.number, set[str]()
    rows = connection.execute(query.limit(MOST_READ + 1)).all()
    if len(rows) > MOST_READ:
        return None  # the last change may be cut in two
    for row in rows:
        if row.epoch != at:
            if at == epoch or row.previous != at:
                break  # a change after the epoch was read, or a gap
            at = row.epoch
        number = row.number
        ids.add(row.key_id)
    return (Position(at, number), frozenset(ids)) if at == epoch else None


def has_history_of(connection: Connection, seen: Position) -> bool:
    """Whether the database may continue an earlier position. It may also have deleted the changes that show it."""
    here = or_(key_changes.c.epoch == seen.epoch, key_changes.c.previous == seen.epoch)
    oldest = connection.execute(select(func.min(key_changes.c.number))).scalar() or 1
    return oldest > seen.number + 1 or connection.execute(select(key_changes.c.number).where(here)).first() is not None


def _newest(connection: Connection) -> int:
    return connection.execute(select(func.max(key_changes.c.number))).scalar() or 0


class Overlay(Mapping[str, V]):
    """A large mapping of which a few entries change at a time. It stays as it is: a change makes another one.

    It is the mapping `under`, with other values of some of its keys; None stands for an absent key.

    A change costs a copy of the latest changes, and not one of the mapping, however large it is.
    """

    __slots__ = ("_over", "_size", "_under")

    def __init__(self, under: Mapping[str, V]) -> None:
        self._under = under
        self._over: Mapping[str, V | None] = {}
        self._size = len(under)

    def changed(self, changes: Mapping[str, V | None]) -> "Overlay[V]":
        """This mapping with other values, None for a key that is removed."""
        over = {**self._over, **changes}
        if len(over) > MOST_CHANGES:
            whole = {**self._under, **over}
            return Overlay({key: value for key, value in whole.items() if value is not None})
        other: Overlay[V] = Overlay.__new__(Overlay)
        other._under, other._over = self._under, over
        other._size = self._size + sum((value is not None) - (key in self) for key, value in changes.items())
        return other

    def __getitem__(self, key: str) -> V:
        over = self._over
        value = over[key] if key in over else self._under[key]
        if value is None:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[str]:
        over = self._over
        yield from (key for key in self._under if key not in over)
        yield from (key for key, value in over.items() if value is not None)

    def __len__(self) -> int:
        return self._size


def overlay(mapping: Mapping[str, V]) -> Overlay[V]:
    """A mapping as one whose changes are cheap; it must not be changed itself any more."""
    return mapping if isinstance(mapping, Overlay) else Overlay(mapping)
