"""A sealed copy of the keys on this host, for processes that start while the database is unavailable.

It has what the database has: hashes, and no key. It is encrypted and authenticated under a secret that is derived from
the pepper, and bound to the database's address.
"""

import logging
import math
import os
import tempfile
import time
import zlib
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

import msgspec
from sqlalchemy import make_url

from config.schema.identity import USER
from gateway.auth.changes import Position
from gateway.auth.keys import NO_LABELS, KeyRecord, Principal
from gateway.auth.pepper import BrokenSeal, Seal, previous_of
from gateway.auth.scope import Scope
from gateway.auth.store import LiveKeys
from gateway.auth.teams.store import StoredTeam
from gateway.state.private_folder import make_private

_log = logging.getLogger(__name__)
_MAGIC = b"headrace keys 1\n"
MOST_AGE = 7 * 86400.0
"""Seconds after which a copy is not used: keys that were revoked since would be valid."""


class SealedKeysRefused(Exception):
    """The copy cannot be used. The message has the reason."""


class _Key(msgspec.Struct, array_like=True):
    id: str
    tenant: str
    hash: bytes
    expires_at: float | None
    role: str
    team: str
    labels: dict[str, str]
    scopes: dict[str, list[str]] | None
    successor: str
    revoked: bool
    lineage: str = ""
    blocked: bool = False


class _Content(msgspec.Struct):
    epoch: int
    number: int
    all_at: int
    keys: list[_Key]
    ended: list[_Key]
    teams: tuple[StoredTeam, ...]


class SealedKeys:
    """One file. Every method blocks: call it in a thread from async code."""

    def __init__(self, path: Path, pepper: bytes, database: str) -> None:
        self.path = path
        self._seals = [Seal(each, "sealed keys") for each in (pepper, previous_of(pepper)) if each is not None]
        # Without the user and the password, which may change.
        self._address = str(make_url(database)._replace(username=None, password=None)).encode()

    def write(self, live: LiveKeys, confirmed: float) -> None:
        """Replace the copy as a whole, for this user alone. Raises `OSError`.

        `confirmed` is when these were the keys of the database, in Unix seconds.
        """
        keys, ended = map(_packed, live.records.values()), map(_packed, live.ended)
        content = _Content(*live.position, live.all_at, list(keys), list(ended), live.teams)
        packed = zlib.compress(msgspec.msgpack.encode(content), 1)
        sealed = _MAGIC + self._seals[0].close(packed, _MAGIC + self._address)
        make_private(self.path.parent)
        _check_own(self.path.parent.stat(), self.path.parent)
        descriptor, draft = tempfile.mkstemp(prefix=f".{self.path.name}-", dir=self.path.parent)  # mode 0600
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(sealed)
                file.flush()
                os.fsync(file.fileno())
            os.utime(draft, (confirmed, confirmed))
            os.replace(draft, self.path)
        except BaseException:
            os.unlink(draft)
            raise

    def confirm(self) -> None:
        """Note that the copy is still what the database has."""
        os.utime(self.path)

    def read(self) -> tuple[LiveKeys, float]:
        """The keys, and the seconds since they were those of the database. Raises `SealedKeysRefused`."""
        try:
            with self.path.open("rb") as file:
                status, sealed = os.fstat(file.fileno()), file.read()
        except FileNotFoundError:
            raise SealedKeysRefused("there is none") from None
        except OSError as error:
            raise SealedKeysRefused(f"{self.path}: {error.strerror or error}") from None
        try:
            _check_own(status, self.path)
        except PermissionError as error:
            raise SealedKeysRefused(str(error)) from None
        age = max(0.0, time.time() - status.st_mtime)
        if age > MOST_AGE:
            raise SealedKeysRefused(f"{self.path}: it is {age / 86400:.0f} days old")
        return self._opened(sealed), age

    def _opened(self, sealed: bytes) -> LiveKeys:
        if not sealed.startswith(_MAGIC):
            raise SealedKeysRefused(f"{self.path}: it is no copy of keys of this release")
        packed = None
        for seal in self._seals:  # the previous pepper's too, while it is rotated
            with suppress(BrokenSeal):
                packed = packed or seal.open(sealed[len(_MAGIC) :], _MAGIC + self._address)
        try:
            content = msgspec.msgpack.decode(zlib.decompress(packed or b""), type=_Content)
        except (zlib.error, msgspec.MsgspecError):
            raise SealedKeysRefused(f"{self.path}: it is damaged, or of another pepper or another database") from None
        records = {key.id: _record(key) for key in content.keys}
        ended = tuple(map(_record, content.ended))
        at = Position(content.epoch, content.number)
        return LiveKeys(at, records, content.teams, ended, all_at=content.all_at)


def _check_own(status: os.stat_result, path: Path) -> None:
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise PermissionError(f"{path}: other users may write here")


def _packed(record: KeyRecord) -> _Key:
    principal = record.principal
    expires = None if math.isinf(record.expires_at) else record.expires_at
    role = next(iter(principal.roles - USER), "user")
    scopes = None if principal.scope is None else {kind: list(names) for kind, names in principal.scope.names.items()}
    return _Key(
        principal.key_id, principal.tenant, record.digest, expires, role, principal.team, dict(principal.labels),
        scopes, record.successor, record.revoked, principal.lineage, record.blocked,
    )  # fmt: skip


def _record(key: _Key) -> KeyRecord:
    roles = USER if key.role == "user" else USER | {key.role}
    labels = MappingProxyType(key.labels) if key.labels else NO_LABELS
    scope = None if key.scopes is None else Scope(**key.scopes)
    principal = Principal(key.tenant, key.id, roles, labels, scope, key.team, lineage=key.lineage)
    end = math.inf if key.expires_at is None else key.expires_at
    return KeyRecord(principal, key.hash, end, key.successor, key.revoked, key.blocked)
