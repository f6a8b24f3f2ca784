"""The table of ids in the state database. Its calls run in one thread: SQLite has one writer."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from sqlalchemy import Column, Connection, Double, Index, Integer, String, delete, or_, select

from gateway.auth.state import StateDatabase
from gateway.features.bus.done.table import DONE, MINE, DoneTableUnavailable
from gateway.state.errors import StateError
from gateway.state.schema import TableGroup
from gateway.state.statements import in_parts, insert_into

BUS = TableGroup("ids of messages")
ids = BUS.table(
    "bus_messages",
    Column("binding", String(128), primary_key=True),
    Column("id", String(64), primary_key=True),
    Column("owner", String(64), nullable=False),
    Column("done", Integer, nullable=False),
    # Unix seconds: the end of a claim, or of the window of an answered message.
    Column("until", Double, nullable=False),
)
Index("bus_messages_until", ids.c.until)
T = TypeVar("T")


class SqlIds:
    """The table in one database. Its methods block."""

    def __init__(self, url: str, pepper: bytes) -> None:
        """Raises `StateError`."""
        self.database = StateDatabase(url, pepper, BUS)

    def close(self) -> None:
        """Close pooled connections."""
        self.database.close()

    def claim(self, binding: str, owner: str, requested: Sequence[str], now: float, takeover: float) -> list[float]:
        """Claim ids."""
        with self.database.transaction() as connection:
            for part in _parts(requested):
                _take(connection, binding, owner, part, now, takeover)
            rows = [row for part in _parts(requested) for row in _rows(connection, binding, part)]
        held = {row.id: row for row in rows}
        return [_standing(held.get(id_), owner, now) for id_ in requested]

    def finish(self, binding: str, owner: str, done_ids: Sequence[str], until: float) -> None:
        """Store ids as done."""
        with self.database.transaction() as connection:
            for part in _parts(done_ids):
                rows = [{"binding": binding, "id": id_, "owner": owner, "done": 1, "until": until} for id_ in part]
                insert = insert_into(connection, ids).values(rows)
                connection.execute(
                    insert.on_conflict_do_update(
                        index_elements=[ids.c.binding, ids.c.id], set_={"done": 1, "owner": owner, "until": until}
                    )
                )

    def release(self, binding: str, owner: str, claimed: Sequence[str]) -> None:
        """End claims."""
        with self.database.transaction() as connection:
            for part in _parts(claimed):
                mine = (ids.c.binding == binding, ids.c.id.in_(part), ids.c.owner == owner, ids.c.done == 0)
                connection.execute(delete(ids).where(*mine))

    def sweep(self, now: float) -> None:
        """Delete entries that have ended."""
        with self.database.transaction() as connection:
            connection.execute(delete(ids).where(ids.c.until < now))


class SqlDoneTable:
    """The ids of one binding. `owner` names this process; `wall` returns Unix seconds."""

    def __init__(
        self,
        open_ids: Callable[[], SqlIds],
        threads: ThreadPoolExecutor,
        binding: str,
        owner: str,
        window: float,
        takeover: float,
        wall: Callable[[], float],
    ) -> None:
        self._open = open_ids
        self._threads = threads
        self._binding = binding
        self._owner = owner
        self._window = window
        self._takeover = takeover
        self._wall = wall

    async def claim(self, ids: Sequence[str]) -> list[float]:
        arguments = (self._binding, self._owner, ids, self._wall(), self._takeover)
        return await self._run(lambda table: table.claim(*arguments))

    async def renew(self, ids: Sequence[str]) -> list[bool]:
        return [end == MINE for end in await self.claim(ids)]

    async def finish(self, ids: Sequence[str]) -> None:
        until = self._wall() + self._window
        await self._run(lambda table: table.finish(self._binding, self._owner, ids, until))

    async def release(self, ids: Sequence[str]) -> None:
        await self._run(lambda table: table.release(self._binding, self._owner, ids))

    async def sweep(self) -> None:
        now = self._wall()
        await self._run(lambda table: table.sweep(now))

    async def _run(self, use: Callable[[SqlIds], T]) -> T:
        def used() -> T:
            return use(self._open())

        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, used)
        except StateError as error:
            raise DoneTableUnavailable(str(error)) from None


def _parts(rows: Sequence[str]) -> Iterator[Sequence[str]]:
    """Sorted, so that no two transactions wait for each other's rows."""
    return in_parts(sorted(rows))


def _take(connection: Connection, binding: str, owner: str, part: Sequence[str], now: float, takeover: float) -> None:
    """Write the claims first: a transaction of SQLite that begins with a read may be unable to write later."""
    values = {"owner": owner, "done": 0, "until": now + takeover}
    insert = insert_into(connection, ids).values([{"binding": binding, "id": id_, **values} for id_ in part])
    free = or_(ids.c.until < now, (ids.c.owner == owner) & (ids.c.done == 0))
    connection.execute(insert.on_conflict_do_update(index_elements=[ids.c.binding, ids.c.id], set_=values, where=free))


def _rows(connection: Connection, binding: str, part: Sequence[str]) -> Sequence[Any]:
    query = select(ids.c.id, ids.c.owner, ids.c.done, ids.c.until)
    return connection.execute(query.where(ids.c.binding == binding, ids.c.id.in_(part))).all()


def _standing(row: Any, owner: str, now: float) -> float:
    if row is None or row.done:
        return DONE if row is not None else MINE
    return MINE if row.owner == owner else max(0.001, row.until - now)
