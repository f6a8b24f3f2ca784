"""The versions of the file that were in force, encrypted in the state database: a URL may have a password.

Every method blocks: call it in a thread from async code. Methods raise `StoreUnavailable` and `StoreMismatch`.
"""

import zlib
from contextlib import suppress
from typing import NamedTuple

from sqlalchemy import (
    Column,
    Connection,
    Double,
    Index,
    Integer,
    LargeBinary,
    String,
    Text,
    delete,
    func,
    insert,
    select,
    update,
)

from gateway.admin.drafts.file import revision_of
from gateway.auth.audit import Actor
from gateway.auth.pepper import BrokenSeal, Seal, previous_of
from gateway.auth.state import StateDatabase
from gateway.state.opened import Opened
from gateway.state.schema import TableGroup

VERSIONS = TableGroup("versions of the configuration")
versions = VERSIONS.table(
    "config_versions",
    Column("version", Integer, primary_key=True, autoincrement=True),
    Column("file", Text, nullable=False),
    Column("at", Double, nullable=False),
    Column("revision", String(64), nullable=False),
    Column("cause", String(32), nullable=False),
    Column("actor", Text, nullable=False),
    # Compressed, then encrypted under a key that is derived from the pepper.
    Column("content", LargeBinary, nullable=False),
)
Index("config_versions_file", versions.c.file, versions.c.version)
MOST_VERSIONS = 200
"""Versions of one file. Older ones are deleted."""
MOST_CONTENT = 64 * 1024**2
"""Bytes of the versions of one file, as stored."""


class ConfigVersion(NamedTuple):
    """One version: `at` in Unix seconds, and the cause and the actor of its first load."""

    version: int
    at: float
    revision: str
    cause: str
    actor: str


class UnreadableVersion(Exception):
    """The version was stored under another pepper."""


class ConfigHistory:
    """The versions of one file. Opens the database at its first use."""

    def __init__(self, url: str, pepper: bytes, file: str) -> None:
        self._file = file
        self._seal, *self._earlier = (
            Seal(each, "configuration history") for each in (pepper, previous_of(pepper)) if each is not None
        )
        self._database = Opened(lambda: StateDatabase(url, pepper, VERSIONS))

    def add(self, text: str, now: float, cause: str, actor: Actor) -> None:
        """Store a version that is in force, unless it is the newest one already."""
        data = text.encode()
        revision = revision_of(data)
        with self._database().change(moves_epoch=False) as connection:
            self._seal_anew(connection)
            own = versions.c.file == self._file
            newest = select(versions.c.revision).where(own).order_by(versions.c.version.desc()).limit(1)
            if connection.execute(newest).scalar() == revision:
                return
            content = self._seal.close(zlib.compress(data), revision.encode())
            row = {"file": self._file, "at": now, "revision": revision, "cause": cause, "actor": actor.id[:300]}
            connection.execute(insert(versions).values(**row, content=content))
            self._trim(connection)

    def read(self, limit: int, before: int | None = None) -> list[ConfigVersion]:
        """The newest versions, newest first; only those numbered below `before`."""
        columns = [getattr(versions.c, name) for name in ConfigVersion._fields]
        query = select(*columns).where(versions.c.file == self._file)
        if before is not None:
            query = query.where(versions.c.version < before)
        with self._database().transaction() as connection:
            return [
                ConfigVersion(*row)
                for row in connection.execute(query.order_by(versions.c.version.desc()).limit(limit))
            ]

    def text(self, version: int) -> str | None:
        """The text of a version; None if there is none. Raises `UnreadableVersion`."""
        query = select(versions.c.revision, versions.c.content)
        with self._database().transaction() as connection:
            row = connection.execute(
                query.where(versions.c.file == self._file, versions.c.version == version)
            ).one_or_none()
        if row is None:
            return None
        for seal in (self._seal, *self._earlier):
            with suppress(BrokenSeal):
                return zlib.decompress(seal.open(row.content, row.revision.encode())).decode()
        raise UnreadableVersion(
            f"version {version} was stored under another pepper: give that one as `auth.previous_pepper` to read it"
        )

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def _seal_anew(self, connection: Connection) -> None:
        """While the pepper is rotated, seal the versions under the previous one anew, so that it can be forgotten."""
        for earlier in self._earlier:
            query = select(versions.c.version, versions.c.revision, versions.c.content)
            for version, revision, content in connection.execute(query.where(versions.c.file == self._file)).all():
                with suppress(BrokenSeal):
                    data = earlier.open(content, revision.encode())
                    sealed = self._seal.close(data, revision.encode())
                    connection.execute(update(versions).where(versions.c.version == version).values(content=sealed))

    def _trim(self, connection: Connection) -> None:
        sizes = select(versions.c.version, func.length(versions.c.content)).where(versions.c.file == self._file)
        total = 0
        for place, (version, size) in enumerate(connection.execute(sizes.order_by(versions.c.version.desc())).all()):
            total += size
            if place and (place >= MOST_VERSIONS or total > MOST_CONTENT):
                older = versions.c.version <= version
                connection.execute(delete(versions).where(versions.c.file == self._file, older))
                return
