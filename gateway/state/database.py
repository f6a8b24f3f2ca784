"""Opens the state database: SQLite in a private file, or another database of SQLAlchemy by URL."""

import errno
import os
import sqlite3
import time
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, OperationalError

from config.installing import installing
from gateway.state.errors import StateConfigError, StoreUnavailable
from gateway.state.private_folder import make_private

_LIBPQ: dict[str, dict[str, object]] = {"psycopg": {"prepare_threshold": None}, "psycopg2": {}}
"""Drivers that accept libpq's settings, with additional arguments: prepared statements do not work behind PgBouncer."""
_APPLICATION = "headrace"
"""The name of the connections in `pg_stat_activity`, unless the URL has another one."""
_LOCK_TIMEOUT = 5.0
"""Seconds a statement waits for another process's write."""


def sqlite_path(database: str) -> Path | None:
    """The absolute path of a `sqlite:///PATH` database, None for any other kind. Raises `StateConfigError`."""
    url = _url(database)
    if url.get_backend_name() != "sqlite":
        return None
    name = url.database
    if not name or name == ":memory:" or name.startswith("file:") or url.query:
        raise StateConfigError("state.database: SQLite stores its keys in a file: give sqlite:///PATH and nothing more")
    return Path(name).absolute()


_FRESH = 1.0
"""Seconds within which two changes of a file may have the same time: the file system's clock has a coarse resolution.
"""

Stamp = tuple[tuple[int, int, int], ...]


def stamp(database: str, now: float) -> Stamp | None:
    """A stamp that changes with every write to a SQLite database, read without opening the database.

    None if the stamp is unreliable: for any other database, for a missing file, and for a file written so recently
    (before `now`, in Unix seconds) that another write could leave the same stamp.
    """
    path = sqlite_path(database)
    if path is None:
        return None
    stamps = []
    for name in (path, path.with_name(path.name + "-wal")):
        try:
            status = name.stat()
        except FileNotFoundError:
            if name == path:
                return None
            continue
        except OSError:
            return None
        if status.st_mtime > now - _FRESH:
            return None
        stamps.append((status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(stamps)


def open_engine(database: str) -> Engine:
    """An engine for the database; creates SQLite's file and folder if they are missing.

    Raises `StateConfigError` for a URL that cannot be used, `StoreUnavailable` if the file cannot be created.
    """
    path = sqlite_path(database)
    if path is not None:
        return _sqlite_engine(path)
    url = _url(database)
    if url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    try:
        arguments: dict[str, object] = {}
        if url.get_driver_name() in _LIBPQ:
            # libpq's keepalive settings: a server that vanished is detected, and no thread waits for it for ever.
            arguments = {"connect_timeout": 5, "tcp_user_timeout": 10_000, "client_encoding": "utf8"}
            arguments |= _LIBPQ[url.get_driver_name()]
            if "application_name" not in url.query:
                arguments["application_name"] = _APPLICATION
        return create_engine(
            url, connect_args=arguments, pool_size=2, max_overflow=2, pool_timeout=5, pool_pre_ping=True
        )
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        hint = f": {installing('postgres')}" if url.drivername == "postgresql+psycopg" else f" ({error})"
        raise StateConfigError(f"state.database: no driver for {url.drivername}:// is installed{hint}") from error


def use_write_ahead_log(connection: Connection) -> None:
    """Enable the write-ahead log: readers of this SQLite file never wait for a writer.

    The setting is stored in the file.
    """
    give_up = time.monotonic() + _LOCK_TIMEOUT
    while True:
        try:
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")
            return
        except OperationalError:
            # For this one statement SQLite does not wait for other processes itself.
            if time.monotonic() > give_up:
                raise
            time.sleep(0.01)


def private_folder(folder: Path) -> None:
    """Create a folder with access for its owner only; an existing folder is not changed."""
    try:
        make_private(folder)
    except OSError as error:
        raise StoreUnavailable(f"cannot create the folder {folder}: {error.strerror}") from error


def create_private_file(path: Path) -> None:
    """Create a missing SQLite file with access for its owner only. Its -wal and -shm files get the same mode.

    An existing file is not opened: to close any descriptor of a file releases all POSIX locks of this process on it,
    also those of SQLite's open connections, and another process then deletes the write-ahead log that they use
    (sqlite.org/howtocorrupt.html, 2.2). Raises `StoreUnavailable`.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        problem = errno.EISDIR if path.is_dir() else 0 if os.access(path, os.R_OK | os.W_OK) else errno.EACCES
        if problem:
            raise StoreUnavailable(f"cannot open {path}: {os.strerror(problem)}") from None
    except OSError as error:
        raise StoreUnavailable(f"cannot open {path}: {error.strerror}") from error


def _url(database: str) -> URL:
    try:
        return make_url(database)
    except ArgumentError:
        # The text is not repeated: it may hold a password.
        raise StateConfigError("state.database: not a database URL such as sqlite:///.headrace/state.db") from None


def _sqlite_engine(path: Path) -> Engine:
    private_folder(path.parent)
    create_private_file(path)

    def connect() -> sqlite3.Connection:
        # mode=rw: a file deleted under a running gateway is an error then, and not a new, empty database.
        return sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=_LOCK_TIMEOUT, check_same_thread=False)

    # No pool: a pooled connection would continue to read a file that was deleted or replaced since.
    return create_engine("sqlite://", creator=connect, poolclass=NullPool)
