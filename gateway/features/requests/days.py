"""The days of the records: one SQLite file, or one partition of Postgres, for each. A day is deleted as a whole.

Every method blocks: call it in a thread from async code. Methods raise `StoreUnavailable`.
"""

import re
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine, NullPool, create_engine, text

from gateway.features.requests.schema import (
    DayTables,
    create_day,
    create_parents,
    create_partition,
    drop_partition,
    is_complete,
    suffix_of,
    tables_of,
)
from gateway.state.database import create_private_file, open_engine, private_folder, sqlite_path
from gateway.state.errors import StoreUnavailable
from gateway.state.faults import database_errors
from gateway.state.schema import exclude_schema_changes

_LOCK_SECONDS = 5.0
_RECORDS = "the database of the records of requests"
_PARTITION = re.compile(r"request_rows_(\d{4})(\d\d)(\d\d)")
_FILE = re.compile(r"\d{4}-\d\d-\d\d")


class RequestDays(ABC):
    """All days of a database."""

    def __init__(self) -> None:
        self._created: set[str] = set()
        """The days that this process knows to be whole."""

    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """The bytes of each day (YYYY-MM-DD), the newest first."""

    @abstractmethod
    def reading(self, day: str) -> AbstractContextManager[tuple[Connection, DayTables]]:
        """A transaction that reads a day of `sizes`."""

    @abstractmethod
    def writing(self, day: str) -> AbstractContextManager[tuple[Connection, DayTables]]:
        """A transaction that writes a day, which it creates if it is missing. Excludes other writers of a journal."""

    @abstractmethod
    def drop(self, day: str) -> None:
        """Delete a day."""

    def forget(self, day: str) -> None:
        """The database may not have a day any more: the next write creates it."""
        self._created.discard(day)

    def close(self) -> None:  # noqa: B027 - a file needs nothing
        """Close pooled connections."""


class SqliteDays(RequestDays):
    """A folder with one SQLite file for each day."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._next = threading.local()
        self._engine = create_engine("sqlite://", creator=self._connect, poolclass=NullPool)

    def sizes(self) -> dict[str, int]:
        days = sorted((path.stem for path in self._folder.glob("*.db") if _FILE.fullmatch(path.stem)), reverse=True)
        return {day: sum(_size(path) for path in self._files(day)) for day in days}

    @contextmanager
    def reading(self, day: str) -> Iterator[tuple[Connection, DayTables]]:
        if day not in self._created:
            self._complete(day)
        with database_errors(_RECORDS), self._of(day).connect() as connection:
            yield connection, tables_of()

    @contextmanager
    def writing(self, day: str) -> Iterator[tuple[Connection, DayTables]]:
        path = self._files(day)[0]
        is_new = day not in self._created or not path.exists()
        if is_new:
            private_folder(self._folder)
            create_private_file(path)
        with database_errors(_RECORDS), self._of(day).begin() as connection:
            if is_new:
                exclude_schema_changes(connection)
                create_day(connection)
            else:
                # A day that is lost with the power is imported no more: the state of each write is whole anyway.
                connection.exec_driver_sql("PRAGMA synchronous=NORMAL")
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection, tables_of()
        self._created.add(day)

    def drop(self, day: str) -> None:
        self._created.discard(day)
        for path in self._files(day):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise StoreUnavailable(f"cannot delete {path}: {error.strerror}") from error

    def _complete(self, day: str) -> None:
        """Add what a day of an earlier release lacks."""
        with database_errors(_RECORDS), self._of(day).connect() as connection:
            complete = is_complete(connection)
        if not complete:
            with database_errors(_RECORDS), self._of(day).begin() as connection:
                exclude_schema_changes(connection)
                create_day(connection)
        self._created.add(day)

    def _files(self, day: str) -> list[Path]:
        return [self._folder / f"{day}.db{ending}" for ending in ("", "-wal", "-shm")]

    def _of(self, day: str) -> Engine:
        """The engine, whose next connection in this thread is to a day. All days share its compiled statements."""
        self._next.day = day
        return self._engine

    def _connect(self) -> sqlite3.Connection:
        # mode=rw: a day that was deleted meanwhile is an error, and not a new file.
        uri = f"{self._files(self._next.day)[0].absolute().as_uri()}?mode=rw"
        return sqlite3.connect(uri, uri=True, timeout=_LOCK_SECONDS, check_same_thread=False)


class PostgresDays(RequestDays):
    """Partitions of two tables, in the state database."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._engine = open_engine(url)

    def sizes(self) -> dict[str, int]:
        with database_errors(_RECORDS), self._engine.begin() as connection:
            return self._sizes(connection)

    @staticmethod
    def _sizes(connection: Connection) -> dict[str, int]:
        statement = text(
            "SELECT c.relname, pg_total_relation_size(c.oid) FROM pg_class c WHERE c.relkind = 'r' "
            "AND c.relname LIKE 'request\\_rows\\_%' AND pg_table_is_visible(c.oid) ORDER BY 1 DESC"
        )
        matches = [(_PARTITION.fullmatch(name), size) for name, size in connection.execute(statement)]
        return {"-".join(match.groups()): size for match, size in matches if match is not None}

    @contextmanager
    def reading(self, day: str) -> Iterator[tuple[Connection, DayTables]]:
        if not self._created:
            self.complete()
        with database_errors(_RECORDS), self._engine.begin() as connection:
            connection.exec_driver_sql("SET LOCAL statement_timeout = '10s'")
            yield connection, tables_of(suffix_of(day))

    @contextmanager
    def writing(self, day: str) -> Iterator[tuple[Connection, DayTables]]:
        if not self._created:
            self.complete()
        with database_errors(_RECORDS), self._engine.begin() as connection:
            connection.exec_driver_sql("SET LOCAL lock_timeout = '5s'")
            if day not in self._created:
                exclude_schema_changes(connection)
                create_parents(connection)
                create_partition(connection, day)
            yield connection, tables_of(suffix_of(day))
        self._created.add(day)

    def complete(self) -> None:
        """Add what the tables of an earlier release lack."""
        with database_errors(_RECORDS), self._engine.begin() as connection:
            if not is_complete(connection):
                connection.exec_driver_sql("SET LOCAL lock_timeout = '5s'")
                exclude_schema_changes(connection)
                create_parents(connection)
                for day in self._sizes(connection):
                    create_partition(connection, day)

    def drop(self, day: str) -> None:
        self._created.discard(day)
        with database_errors(_RECORDS), self._engine.begin() as connection:
            connection.exec_driver_sql("SET LOCAL lock_timeout = '5s'")
            exclude_schema_changes(connection)
            drop_partition(connection, day)

    def close(self) -> None:
        self._engine.dispose()


def open_days(database: str, folder: Path) -> RequestDays:
    """The days of a state database; `folder` has those of SQLite. Raises `StateConfigError`."""
    return PostgresDays(database) if sqlite_path(database) is None else SqliteDays(folder)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
