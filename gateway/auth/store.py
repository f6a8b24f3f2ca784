"""Issued keys, in a database. Every method blocks: call it in a thread from async code.

Every change moves the epoch in the same transaction. Gateways poll that one number, and read the keys again
when it differs from the one they know.
"""

import hmac
import logging
import math
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple

from sqlalchemy import ColumnElement, Connection, exists, insert, inspect, or_, select, update
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.schema import CreateTable

from gateway.auth.database import open_engine, use_write_ahead_log
from gateway.auth.errors import KeyEnded, NoSuchKey, StoreMismatch, StoreUnavailable
from gateway.auth.keys import ApiKey, KeyRecord, Principal, digest, new_key
from gateway.auth.schema import SCHEMA_VERSION, keys, state

_log = logging.getLogger(__name__)
Status = Literal["active", "replaced", "expired", "revoked"]


@dataclass(frozen=True, slots=True)
class StoredKey:
    """An issued key as operators see it; times are Unix seconds. Its hash stays in the database."""

    id: str
    tenant: str
    label: str
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    replaced_by: str | None = None

    def status(self, now: float) -> Status:
        """`replaced` is a key that was rotated and still works until its overlap is over."""
        if self.revoked_at is not None:
            return "revoked"
        if self.expires_at is not None and self.expires_at <= now:
            return "expired"
        return "replaced" if self.replaced_by is not None else "active"


class LiveKeys(NamedTuple):
    """The keys that could be accepted, and the epoch at which they were read."""

    epoch: int
    records: tuple[KeyRecord, ...]


class KeyStore:
    """Opening one makes its tables. Methods raise `StoreUnavailable` and `StoreMismatch`."""

    def __init__(self, database: str, pepper: bytes) -> None:
        """`database` is an SQLAlchemy URL. Raises `KeyConfigError` for one that cannot be used."""
        self._pepper = pepper
        self._pepper_check = digest(pepper, "headrace pepper check").hex()
        self._engine = open_engine(database)
        self._prepare()

    def create(self, tenant: str, label: str = "", *, now: float, expires_at: float | None = None) -> ApiKey:
        """Issue a key."""
        with self._change() as connection:
            return self._insert(connection, tenant, label, now, expires_at)

    def revoke(self, key_id: str, *, now: float) -> None:
        """End a key at once. Raises `NoSuchKey`, and `KeyEnded` when it is revoked already."""
        with self._change() as connection:
            key = _find(connection, key_id)
            if key.revoked_at is not None:
                raise KeyEnded(f"key {key_id} is revoked already")
            connection.execute(update(keys).where(keys.c.id == key_id).values(revoked_at=now))

    def rotate(self, key_id: str, overlap: float, *, now: float, expires_at: float | None = None) -> ApiKey:
        """Issue a key in another's place; the old one ends after `overlap` seconds, or earlier if it would.

        Without `expires_at` the new key ends when the old one would have. Raises `NoSuchKey`, and `KeyEnded`
        when the old one is revoked, expired or replaced already.
        """
        with self._change() as connection:
            old = _find(connection, key_id)
            if (status := old.status(now)) != "active":
                by = f" by {old.replaced_by}" if status == "replaced" else ""
                raise KeyEnded(f"key {key_id} is {status}{by} already")
            new = self._insert(
                connection, old.tenant, old.label, now, old.expires_at if expires_at is None else expires_at
            )
            end = min(now + overlap, old.expires_at or math.inf)
            connection.execute(update(keys).where(keys.c.id == key_id).values(expires_at=end, replaced_by=new.id))
        return new

    def read_all(self) -> tuple[StoredKey, ...]:
        """Every key ever issued, oldest first."""
        with self._transaction() as connection:
            return _read(connection)

    def read_epoch(self) -> int:
        """A number that every change makes another."""
        with self._transaction() as connection:
            return self._checked_epoch(connection)

    def read_live(self, now: float) -> LiveKeys:
        """The keys that are neither revoked nor expired."""
        query = select(keys.c.tenant, keys.c.id, keys.c.hash, keys.c.expires_at).where(
            keys.c.revoked_at.is_(None), or_(keys.c.expires_at.is_(None), keys.c.expires_at > now)
        )
        with self._transaction() as connection:
            # The epoch first: a change that slips in between is then read twice, and not missed.
            epoch = self._checked_epoch(connection)
            return LiveKeys(epoch, tuple(_record(*row) for row in connection.execute(query)))

    def close(self) -> None:
        """Give up pooled connections."""
        self._engine.dispose()

    def _prepare(self) -> None:
        with self._transaction() as connection:
            known = inspect(connection).has_table(state.name)
        if not known:
            self._make_tables()
        with self._transaction() as connection:
            # While no key depends on it, the pepper may still be changed.
            unused = update(state).where(state.c.pepper_check != self._pepper_check, ~exists(select(keys.c.id)))
            connection.execute(unused.values(pepper_check=self._pepper_check))
            self._checked_epoch(connection)

    def _make_tables(self) -> None:
        # A random start: a database that was deleted and made anew is then noticed as a change.
        first = {"id": 1, "schema_version": SCHEMA_VERSION, "epoch": secrets.randbits(48)}
        try:
            with self._engine.begin() as connection:
                if connection.dialect.name == "sqlite":
                    use_write_ahead_log(connection)
                    # Tables and row in one step: Python's driver opens no transaction for DDL by itself.
                    connection.exec_driver_sql("BEGIN IMMEDIATE")
                for table in (keys, state):
                    connection.execute(CreateTable(table, if_not_exists=True))
                connection.execute(insert(state).values(first | {"pepper_check": self._pepper_check}))
        except IntegrityError:
            _log.debug("another process made the tables at the same moment")
        except DBAPIError as error:
            raise _unavailable(error) from error

    def _insert(self, connection: Connection, tenant: str, label: str, now: float, expires_at: float | None) -> ApiKey:
        key = new_key()
        row = {"id": key.id, "tenant": tenant, "label": label, "created_at": now, "expires_at": expires_at}
        connection.execute(insert(keys).values(row | {"hash": digest(self._pepper, key.plaintext).hex()}))
        return key

    def _checked_epoch(self, connection: Connection) -> int:
        """The epoch of a database that this process can work with. Raises `StoreMismatch`."""
        row = connection.execute(select(state.c.schema_version, state.c.epoch, state.c.pepper_check)).one_or_none()
        if row is None or row.schema_version != SCHEMA_VERSION:
            found = row.schema_version if row else "no version"
            raise StoreMismatch(f"the key database has schema {found}, this release needs {SCHEMA_VERSION}")
        if not hmac.compare_digest(row.pepper_check, self._pepper_check):
            raise StoreMismatch(
                "the key database was written with another pepper, so none of its keys could be checked: "
                "restore that pepper, or begin with an empty database"
            )
        epoch: int = row.epoch
        return epoch

    @contextmanager
    def _change(self) -> Iterator[Connection]:
        """A transaction that begins with the epoch: its one row is also the lock by which writers take turns."""
        with self._transaction() as connection:
            connection.execute(update(state).values(epoch=state.c.epoch + 1))
            self._checked_epoch(connection)
            yield connection

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except (DBAPIError, PoolTimeout) as error:
            raise _unavailable(error) from error


def _read(connection: Connection, *where: ColumnElement[bool]) -> tuple[StoredKey, ...]:
    shown = [column for column in keys.c if column.name != "hash"]
    rows = connection.execute(select(*shown).where(*where).order_by(keys.c.created_at, keys.c.id)).mappings()
    return tuple(StoredKey(**row) for row in rows)


def _find(connection: Connection, key_id: str) -> StoredKey:
    found = _read(connection, keys.c.id == key_id)
    if not found:
        raise NoSuchKey(f"no issued key has the id {key_id!r}")
    return found[0]


def _record(tenant: str, key_id: str, hash_hex: str, expires_at: float | None) -> KeyRecord:
    return KeyRecord(Principal(tenant, key_id), bytes.fromhex(hash_hex), math.inf if expires_at is None else expires_at)


def _unavailable(error: DBAPIError | PoolTimeout) -> StoreUnavailable:
    """The driver's own sentence only: SQLAlchemy's adds the statement and its parameters."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    return StoreUnavailable(f"the key database cannot be used now: {' '.join(str(cause).split())}")
