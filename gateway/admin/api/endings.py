"""What has ended before its time: sessions, all sessions of a person, and sign-ins that are used up.

The names are in the state database, so that all gateways agree. In an outage of it a gateway uses the names that it
read last, beside its own, and writes these as soon as it can.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Mapping

from sqlalchemy import Column, Connection, Double, String, delete, select

from gateway.auth.state import StateDatabase
from gateway.state.errors import StateError
from gateway.state.opened import Opened
from gateway.state.schema import TableGroup
from gateway.state.statements import insert_into

_log = logging.getLogger(__name__)

ENDINGS = TableGroup("endings of the console's sessions")
endings = ENDINGS.table(
    "console_endings",
    Column("name", String(64), primary_key=True),
    Column("at", Double, nullable=False),
    # Until then the name matters: what it names would have expired by itself.
    Column("until", Double, nullable=False),
)
PATIENCE_SECONDS = 3.0
"""The longest wait of a request for the database."""
PAUSE_SECONDS = 5.0
"""After a failure no request waits for the database for this time."""
Times = tuple[float, float]
"""When something ended, and until when that matters; Unix seconds."""


def ending(kind: str, id: str) -> str:
    """The name of an ending. Ids of people do not appear in it."""
    return hashlib.sha256(f"{kind}\0{id}".encode(errors="surrogatepass")).hexdigest()


class SessionEndings:
    """The endings that this gateway knows of. Opens the database at its first use."""

    def __init__(self, database: Callable[[], StateDatabase], clock: Callable[[], float] = time.time) -> None:
        self._database = Opened(database)
        self._clock = clock
        self._ended: dict[str, Times] = {}
        self._unsaved: dict[str, Times] = {}
        self._one_at_a_time = asyncio.Lock()
        self._resumes = 0.0

    async def times(self, *names: str) -> list[float | None]:
        """When each of these ended; None for what has not."""
        await self._exchange()
        ended = (self._ended.get(name) for name in names)
        return [None if times is None else times[0] for times in ended]

    async def add(self, name: str, until: float) -> None:
        """End something now, in every gateway."""
        self._unsaved[name] = self._ended[name] = (self._clock(), until)
        await self._exchange()

    async def take(self, name: str, until: float) -> bool:
        """Use something up. Returns whether no gateway has used it before."""
        if name in self._ended:
            return False
        times = self._ended[name] = (self._clock(), until)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await asyncio.to_thread(self._insert_new, name, times)
        except (StateError, TimeoutError):
            self._unsaved[name] = times
            return True

    async def aclose(self) -> None:
        """Close the database."""
        await asyncio.to_thread(self._database.close)

    async def _exchange(self) -> None:
        """Write what ended here, and read what ended elsewhere."""
        async with self._one_at_a_time:
            loop = asyncio.get_running_loop()
            if loop.time() < self._resumes:
                return
            unsaved = dict(self._unsaved)
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    stored = await asyncio.to_thread(self._write_and_read, unsaved, self._clock())
            except (StateError, TimeoutError) as error:
                self._resumes = loop.time() + PAUSE_SECONDS
                _log.warning("console: sign-outs of other gateways have no effect here meanwhile: %s", error or "time")
                return
            self._unsaved = {name: times for name, times in self._unsaved.items() if unsaved.get(name) != times}
            self._ended = {**stored, **self._unsaved}

    def _write_and_read(self, rows: Mapping[str, Times], now: float) -> dict[str, Times]:
        with self._database().transaction() as connection:
            if rows:
                connection.execute(delete(endings).where(endings.c.until <= now))
                statement = insert_into(connection, endings)
                newer = {"at": statement.excluded.at, "until": statement.excluded.until}
                later = endings.c.at < statement.excluded.at
                statement = statement.on_conflict_do_update(index_elements=["name"], set_=newer, where=later)
                connection.execute(statement, [_row(name, times) for name, times in rows.items()])
            return _read(connection, now)

    def _insert_new(self, name: str, times: Times) -> bool:
        with self._database().transaction() as connection:
            statement = insert_into(connection, endings).on_conflict_do_nothing()
            return bool(connection.execute(statement.values(**_row(name, times))).rowcount)


def _row(name: str, times: Times) -> dict[str, object]:
    return {"name": name, "at": times[0], "until": times[1]}


def _read(connection: Connection, now: float) -> dict[str, Times]:
    query = select(endings.c.name, endings.c.at, endings.c.until).where(endings.c.until > now)
    return {name: (at, until) for name, at, until in connection.execute(query)}
