"""The state database: engine, transactions and the checks that each transaction makes.

Every method blocks: call it in a thread from async code.
"""

import hmac
import logging
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import RLock

from sqlalchemy import Connection, Engine, exists, select, update

from gateway.auth.audit import PEPPER_REPLACED, Act, Actor, append
from gateway.auth.changes import record_change
from gateway.auth.keys import digest
from gateway.auth.pepper import previous_of
from gateway.auth.schema import KEYS, TEAMS, audit, create_tables, keys, state, upgrade_tables, version_of
from gateway.state.database import open_engine, sqlite_path
from gateway.state.errors import StoreMismatch, StoreUnavailable
from gateway.state.faults import database_errors
from gateway.state.schema import SCHEMA_VERSION, TableGroup, missing

_LOCK_TIMEOUT = "SET LOCAL lock_timeout = '5s'"

_log = logging.getLogger(__name__)
_opened: set[str] = set()
"""The databases that this process has opened."""


class StateDatabase:
    """Creates and completes its tables when it opens. Raises `StoreUnavailable`, `StoreRefused` and `StoreMismatch`."""

    def __init__(self, url: str, pepper: bytes, *groups: TableGroup, waits: bool = False) -> None:
        """`url` is an SQLAlchemy URL; `groups` are used beside the tables of keys. Raises `StateConfigError` for a URL
        that cannot be used.

        With `waits`, a database that is unavailable is opened by a later transaction.
        """
        self.pepper = pepper
        self._pepper_check = pepper_check(pepper)
        self._url = url
        self._groups = groups
        self._engine: Engine | None = None
        self._polled: Connection | None = None
        self._opening = RLock()
        """Held while the tables are created, which needs transactions too."""
        self.is_open = False
        try:
            self._open()
        except StoreUnavailable:
            if not waits:
                raise

    def _open(self) -> None:
        with self._opening:
            if self._engine is not None:
                return
            self._engine = open_engine(self._url)
            try:
                self._prepare()
                for group in self._groups:
                    with self.transaction() as connection:
                        group.prepare(connection)
                self.is_open = True
            except BaseException:
                self.close()
                self._engine = None
                raise

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction that reads."""
        if not self.is_open:
            self._open()
        assert self._engine is not None
        with database_errors("the key database"), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def change(self, *, moves_epoch: bool, keys: Sequence[str] = ()) -> Iterator[Connection]:
        """A transaction that writes. It begins with an update of the state's one row, which serializes the writers.

        `moves_epoch` tells all gateways of a change of these keys, or of teams.
        """
        with self.transaction() as connection:
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql(_LOCK_TIMEOUT)
            connection.execute(update(state).values(epoch=state.c.epoch))
            self.checked_epoch(connection)
            if moves_epoch:
                record_change(connection, keys)
            yield connection

    def read_epoch(self) -> int:
        """The present epoch, which every process reads many times a second. One thread calls it at a time.

        A server gets one statement on a connection of its own: a transaction on a pooled one has four round trips.
        """
        if sqlite_path(self._url) is not None:
            with self.transaction() as connection:
                return self.checked_epoch(connection)
        if not self.is_open:
            self._open()
        assert self._engine is not None
        while True:
            is_new = self._polled is None
            try:
                with database_errors("the key database"):
                    if self._polled is None:
                        self._polled = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
                    return self.checked_epoch(self._polled)
            except StoreUnavailable:
                self._end_polls()
                if is_new:  # an old connection may have been ended by a server that answers
                    raise

    def _end_polls(self) -> None:
        polled, self._polled = self._polled, None
        if polled is not None:
            polled.invalidate()
            polled.close()

    def checked_epoch(self, connection: Connection) -> int:
        """The epoch of a database that this process supports. Raises `StoreMismatch`."""
        row = connection.execute(select(state.c.schema_version, state.c.epoch, state.c.pepper_check)).one_or_none()
        if row is None or row.schema_version != SCHEMA_VERSION:
            raise StoreMismatch(_other_schema(row.schema_version if row else 0))
        self._check_pepper(row.pepper_check)
        epoch: int = row.epoch
        return epoch

    def _check_pepper(self, stored: str, *, may_rotate: bool = False) -> None:
        previous = previous_of(self.pepper)
        if may_rotate and previous is not None and hmac.compare_digest(stored, pepper_check(previous)):
            return
        if not hmac.compare_digest(stored, self._pepper_check):
            raise StoreMismatch(
                "the key database was written with another pepper, so none of its keys could be checked: "
                "restore that pepper, or start with an empty database"
            )

    def close(self) -> None:
        """Close all connections."""
        self._end_polls()
        if self._engine is not None:
            self._engine.dispose()

    def _prepare(self) -> None:
        with self.transaction() as connection:
            version = version_of(connection)
        if version is None:
            with self.transaction() as connection:
                create_tables(connection, self._pepper_check)
            if self._url in _opened:
                _log.error("the state database was deleted or replaced while in use: a new, empty one is made")
            else:
                _log.info("the state database is new and empty")
        elif version == 1:
            with self.transaction() as connection:
                self._check_pepper(connection.execute(select(state.c.pepper_check)).scalar_one(), may_rotate=True)
            with self.transaction() as connection:
                upgrade_tables(connection)
            _log.warning(
                "the state database is upgraded from schema 1 to %d: earlier releases refuse it", SCHEMA_VERSION
            )
        _opened.add(self._url)
        with self.transaction() as connection:
            groups = [TEAMS, KEYS] if version_of(connection) == SCHEMA_VERSION else [TEAMS]
            incomplete = [group for group in groups if missing(connection, group.metadata.sorted_tables)]
        for group in incomplete:  # of an earlier release
            with self.transaction() as connection:
                group.prepare(connection)
        with self.transaction() as connection:
            self._check_or_replace_pepper(connection)

    def _check_or_replace_pepper(self, connection: Connection) -> None:
        """Record the pepper while no key depends on it, or in place of the previous one."""
        if version_of(connection) == SCHEMA_VERSION:
            if (previous := previous_of(self.pepper)) is not None:
                self._rotate(connection, pepper_check(previous))
            other = update(state).where(state.c.pepper_check != self._pepper_check, ~exists(select(keys.c.id)))
            changed = connection.execute(other.values(pepper_check=self._pepper_check)).rowcount
            if changed and connection.execute(select(exists(select(audit.c.seq)))).scalar():
                append(connection, self.pepper, Act(this_process(), PEPPER_REPLACED), time.time())
        self.checked_epoch(connection)

    def _rotate(self, connection: Connection, before: str) -> None:
        """Mark the keys of the previous pepper. The transaction begins with a write, so one process does it."""
        rotated = update(state).where(state.c.pepper_check == before).values(pepper_check=self._pepper_check)
        if connection.execute(rotated).rowcount:
            connection.execute(update(keys).where(keys.c.pepper == "").values(pepper=mark(before)))
            act = Act(this_process(), PEPPER_REPLACED, detail={"keys": "hashed anew when they are used"})
            append(connection, self.pepper, act, time.time())


def pepper_check(pepper: bytes) -> str:
    """The value by which a database recognizes a pepper."""
    return digest(pepper, "headrace pepper check").hex()


def mark(check: str) -> str:
    """The mark of a key whose pepper has this check."""
    return check[:16]


def this_process() -> Actor:
    """The actor of an act without a request."""
    return Actor(f"gateway@{socket.gethostname()}")


def _other_schema(stored: int) -> str:
    if stored > SCHEMA_VERSION:
        return (
            f"the key database has schema {stored} of a newer release; this release supports {SCHEMA_VERSION}: "
            "install the newer release again, or restore the backup that was made before its first start"
        )
    return (
        f"the key database has schema {stored or 'no version'}, this release needs {SCHEMA_VERSION}: "
        "restart the gateway, which upgrades the database, or restore a backup"
    )
