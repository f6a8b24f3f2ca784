"""Live figures in the state database. Every method blocks, and raises `StoreUnavailable` and `StoreMismatch`."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from sqlalchemy import Connection, Table, delete, select

from gateway.auth.state import StateDatabase
from gateway.features.live.schema import LIVE, minutes, replicas, watched
from gateway.state.statements import insert_into

_ROW = 1
_FORGOTTEN = 3600.0
"""Seconds of silence after which a replica is forgotten."""


class OtherReplica(NamedTuple):
    """What another replica has stored last."""

    replica: str
    name: str
    beat: int
    frame: str
    """JSON."""


class LiveStore:
    """Creates missing tables when it opens."""

    def __init__(self, url: str, pepper: bytes) -> None:
        """`url` is an SQLAlchemy URL. Raises `StateConfigError` for one that cannot be used."""
        self._database = StateDatabase(url, pepper, LIVE)

    def add_minutes(self, replica: str, figures: Mapping[int, str], oldest: int) -> None:
        """Store the figures of minutes, as JSON. A stored minute stays. Delete those before `oldest`."""
        rows = [{"replica": replica, "minute": minute, "figures": text} for minute, text in figures.items()]
        with self._database.change(moves_epoch=False) as connection:
            if rows:
                statement = insert_into(connection, minutes).on_conflict_do_nothing()
                connection.execute(statement, rows)
            connection.execute(delete(minutes).where(minutes.c.minute < oldest))

    def minutes_from(self, first: int, replica: str | None) -> list[tuple[int, str]]:
        """The stored minutes from `first` on, of one replica or of all, in their order."""
        statement = select(minutes.c.minute, minutes.c.figures).where(minutes.c.minute >= first)
        if replica is not None:
            statement = statement.where(minutes.c.replica == replica)
        with self._database.transaction() as connection:
            return [(minute, figures) for minute, figures in connection.execute(statement.order_by(minutes.c.minute))]

    def watch(self) -> int:
        """The beat of those who watch."""
        with self._database.transaction() as connection:
            return connection.execute(select(watched.c.beat)).scalar() or 0

    def raise_watch(self) -> None:
        """Let all replicas store what they do."""
        with self._database.change(moves_epoch=False) as connection:
            _upsert(connection, watched, {"id": _ROW, "beat": 1}, {"beat": watched.c.beat + 1})

    def put(self, replica: str, name: str, at: float, frame: str) -> None:
        """Store what a replica does now, and forget those that were silent for long: they were killed."""
        with self._database.change(moves_epoch=False) as connection:
            connection.execute(delete(replicas).where(replicas.c.at < at - _FORGOTTEN))
            values = {"name": name, "at": at, "frame": frame}
            _upsert(
                connection, replicas, {"replica": replica, "beat": 1, **values}, {**values, "beat": replicas.c.beat + 1}
            )

    def others(self, replica: str) -> list[OtherReplica]:
        """What all replicas but one have stored."""
        columns = [replicas.c[name] for name in OtherReplica._fields]
        with self._database.transaction() as connection:
            rows = connection.execute(select(*columns).where(replicas.c.replica != replica).order_by(replicas.c.name))
            return [OtherReplica(*row) for row in rows]

    def remove(self, replica: str) -> None:
        """Delete what a replica does: it ends."""
        with self._database.change(moves_epoch=False) as connection:
            connection.execute(delete(replicas).where(replicas.c.replica == replica))

    def close(self) -> None:
        """Close pooled connections."""
        self._database.close()


def _upsert(connection: Connection, table: Table, values: dict[str, Any], changes: dict[str, Any]) -> None:
    (key,) = table.primary_key.columns.keys()
    statement = insert_into(connection, table).values(values)
    connection.execute(statement.on_conflict_do_update(index_elements=[key], set_=changes))
