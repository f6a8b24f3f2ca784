"""Issued keys, in the state database. Every method blocks: call it in a thread from async code.

Every change moves the epoch and writes its entry of the audit log, in one transaction. Gateways poll the epoch, and
read the changed keys when the epoch differs from that of their last reading.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, Select, delete, func, insert, or_, select, tuple_, update

from config.schema.identity import USER, GrantConfig
from gateway.auth import audit
from gateway.auth.audit import Act, Actor, AuditEntry, Verdict
from gateway.auth.changes import (
    MOST_STORED,
    TEAMS_CHANGED,
    Position,
    changed_since,
    has_history_of,
    overlay,
    position,
    record_change,
)
from gateway.auth.errors import KeyEnded, NoSuchKey, TooManyKeys
from gateway.auth.keys import NO_LABELS, ApiKey, KeyRecord, Principal, digest, new_key
from gateway.auth.pepper import previous_of
from gateway.auth.schema import keys, team_keys
from gateway.auth.scope import Scope
from gateway.auth.state import StateDatabase, mark, pepper_check
from gateway.auth.teams.store import StoredTeam, TeamStore, join_team, read_teams, team_of
from gateway.state.database import Stamp, stamp
from gateway.state.statements import in_parts

Status = Literal["active", "replaced", "blocked", "expired", "revoked"]
_NOTHING = GrantConfig()
MOST_ENDED = 10_000
"""Ended keys that a gateway reads: a database may have any number of them."""


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
    role: str = "user"
    scopes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    team: str = ""
    pepper: str = ""
    """The mark of the pepper of its hash; empty for the present one."""
    lineage: str | None = None
    """The id of the first key that this one replaces."""
    blocked_at: float | None = None

    def status(self, now: float) -> Status:
        """`replaced` is a key that was rotated and still works until its overlap ends."""
        if self.revoked_at is not None:
            return "revoked"
        if self.expires_at is not None and self.expires_at <= now:
            return "expired"
        if self.blocked_at is not None:
            return "blocked"
        return "replaced" if self.replaced_by is not None else "active"


class LiveKeys(NamedTuple):
    """The keys that are accepted until their expiry, by id, the teams, and the position at which they were read."""

    position: Position
    records: Mapping[str, KeyRecord]
    teams: tuple[StoredTeam, ...] = ()
    ended: tuple[KeyRecord, ...] = ()
    """The keys that ended or were blocked last, by which a refusal names its reason."""
    changed: frozenset[str] | None = None
    """The ids of the keys that are not as in the reading before; None if all were read."""
    is_other: bool = False
    """Whether the database is not the one of the reading before, or an older state of it."""
    all_at: int = 0
    """The number of the newest change when all keys were last read."""


class KeyStore:
    """Creates missing tables when it opens. Methods raise `StoreUnavailable` and `StoreMismatch`."""

    def __init__(self, database: str, pepper: bytes, *, waits: bool = False) -> None:
        """`database` is an SQLAlchemy URL, opened later if it is unavailable and `waits` is true. Raises
        `StateConfigError` for a URL that cannot be used."""
        self.pepper = pepper
        self._url = database
        self._database = StateDatabase(database, pepper, waits=waits)
        self.teams = TeamStore(self._database)

    def create(
        self,
        tenant: str,
        label: str = "",
        *,
        by: Actor,
        now: float,
        expires_at: float | None = None,
        grant: GrantConfig = _NOTHING,
        most: int | None = None,
    ) -> ApiKey:
        """Issue a key. Raises `TooManyKeys` for a tenant that has `most` valid ones."""
        key = new_key()
        row = {"tenant": tenant, "label": label, "expires_at": expires_at, **_columns(grant)}
        with self._database.change(moves_epoch=True, keys=(key.id,)) as connection:
            _make_room(connection, tenant, now, most, rotates=False)
            self._insert(connection, key, row, now)
            join_team(connection, key.id, grant.team)
            given = grant.model_dump(mode="json", exclude_defaults=True)
            detail = {"label": label, "expires_at": expires_at, **given}
            self._audit(connection, Act(by, "key.create", f"{tenant}/{key.id}", detail=detail), now)
        return key

    def revoke(self, key_id: str, *, by: Actor, now: float, tenant: str | None = None) -> None:
        """End a key at once. Raises `NoSuchKey` (with `tenant`, for another's too), and `KeyEnded` for the second
        time."""
        with self._database.change(moves_epoch=True, keys=(key_id,)) as connection:
            key = _find(connection, key_id, tenant)
            if key.revoked_at is not None:
                raise KeyEnded(f"key {key_id} is revoked already")
            connection.execute(update(keys).where(keys.c.id == key_id).values(revoked_at=now))
            self._audit(connection, Act(by, "key.revoke", f"{key.tenant}/{key_id}"), now)

    def block(self, key_id: str, *, by: Actor, now: float, tenant: str | None = None) -> tuple[str, ...]:
        """Accept no key of a key's lineage until `unblock`. Returns the ids of these keys; blocking again does nothing.

        Raises `NoSuchKey`, and `KeyEnded` for a key that has ended.
        """
        return self._set_block(key_id, now, Act(by, "key.block", ""), now, tenant)

    def unblock(self, key_id: str, *, by: Actor, now: float, tenant: str | None = None) -> tuple[str, ...]:
        """Accept the keys of a key's lineage again, as far as they have not ended. Raises what `block` raises."""
        return self._set_block(key_id, None, Act(by, "key.unblock", ""), now, tenant)

    def _set_block(self, key_id: str, at: float | None, act: Act, now: float, tenant: str | None) -> tuple[str, ...]:
        with self._database.change(moves_epoch=False) as connection:
            key = _find(connection, key_id, tenant)
            if (status := key.status(now)) in ("revoked", "expired"):
                raise KeyEnded(f"key {key_id} is {status} already")
            first = key.lineage or key.id
            own = or_(keys.c.id == first, keys.c.lineage == first) & (keys.c.tenant == key.tenant)
            rows = connection.execute(
                select(keys.c.id, keys.c.blocked_at).where(own, keys.c.revoked_at.is_(None))
            ).all()
            changed = [row.id for row in rows if (row.blocked_at is None) != (at is None)]
            if changed:
                record_change(connection, changed)
                connection.execute(update(keys).where(keys.c.id.in_(changed)).values(blocked_at=at))
            detail = {"keys": changed}
            self._audit(connection, replace(act, target=f"{key.tenant}/{key_id}", detail=detail), now)
        return tuple(row.id for row in rows)

    def rotate(
        self,
        key_id: str,
        overlap: float,
        *,
        by: Actor,
        now: float,
        expires_at: float | None = None,
        tenant: str | None = None,
        most: int | None = None,
    ) -> ApiKey:
        """Issue a key in place of another one; the old one ends after `overlap` seconds, or at its own expiry if that
        is earlier.

        Without `expires_at` the new key has the expiry of the old one. Role, scopes, labels, team and lineage stay.
        Raises `NoSuchKey`, `KeyEnded` when the old one is not active, and `TooManyKeys`.
        """
        new = new_key()
        with self._database.change(moves_epoch=True, keys=(key_id, new.id)) as connection:
            old = _find(connection, key_id, tenant)
            if (status := old.status(now)) != "active":
                by_key = f" by {old.replaced_by}" if status == "replaced" else ""
                raise KeyEnded(f"key {key_id} is {status}{by_key} already")
            _make_room(connection, old.tenant, now, most, rotates=True)
            columns = select(keys.c.tenant, keys.c.label, keys.c.role, keys.c.scopes, keys.c.labels)
            row = dict(connection.execute(columns.where(keys.c.id == key_id)).mappings().one())
            row["expires_at"] = old.expires_at if expires_at is None else expires_at
            row["lineage"] = old.lineage or old.id
            self._insert(connection, new, row, now)
            join_team(connection, new.id, team_of(connection, key_id))
            end = min(now + overlap, old.expires_at or math.inf)
            connection.execute(update(keys).where(keys.c.id == key_id).values(expires_at=end, replaced_by=new.id))
            detail = {"replaced_by": new.id, "old_ends_at": end}
            self._audit(connection, Act(by, "key.rotate", f"{old.tenant}/{key_id}", detail=detail), now)
        return new

    def renew(self, hashes: Mapping[str, bytes]) -> None:
        """Store the hashes of keys, by id, under the present pepper in place of those under the previous one."""
        if (previous := previous_of(self.pepper)) is None:
            return
        old = keys.c.pepper == mark(pepper_check(previous))
        with self._database.transaction() as connection:
            ids = tuple(connection.execute(select(keys.c.id).where(keys.c.id.in_(hashes), old)).scalars())
        if not ids:
            return  # keys of the file, or another process was faster: that is no change
        with self._database.change(moves_epoch=True, keys=ids) as connection:
            for key_id in ids:
                values = {"hash": hashes[key_id].hex(), "pepper": ""}
                connection.execute(update(keys).where(keys.c.id == key_id, old).values(**values))

    def find(self, key_id: str, tenant: str | None = None) -> StoredKey:
        """One key, also an ended one. Raises `NoSuchKey`; with `tenant`, for another's too."""
        with self._database.transaction() as connection:
            return _find(connection, key_id, tenant)

    def read_all(self, tenant: str | None = None, newest: int | None = None) -> tuple[StoredKey, ...]:
        """Every key ever issued, oldest first; or those of one tenant, or so many of the newest."""
        with self._database.transaction() as connection:
            read = _read(connection, *(() if tenant is None else (keys.c.tenant == tenant,)), newest=newest)
        return read if newest is None else read[::-1]

    def walk(self, tenant: str | None = None) -> Iterator[StoredKey]:
        """What `read_all` returns, read in parts as they are needed, each in a transaction of its own."""
        where = () if tenant is None else (keys.c.tenant == tenant,)
        with self._database.transaction() as connection:
            order = select(keys.c.id).where(*where).order_by(keys.c.created_at, keys.c.id)
            ids = connection.execute(order).scalars().all()
        for part in in_parts(ids):
            with self._database.transaction() as connection:
                read = _read(connection, keys.c.id.in_(part))
            yield from read

    def read_page(self, tenant: str, limit: int, after: str | None = None, text: str = "") -> tuple[StoredKey, ...]:
        """The newest keys of a tenant, newest first; only those that are older than the key `after`, and whose id
        begins with a text or whose label contains it. Raises `NoSuchKey` for an `after` of no key of the tenant."""
        with self._database.transaction() as connection:
            where = [keys.c.tenant == tenant]
            if text:
                named = keys.c.id.startswith(text, autoescape=True)
                where.append(or_(named, keys.c.label.icontains(text, autoescape=True)))
            if after is not None:
                last = _find(connection, after, tenant)
                where.append(tuple_(keys.c.created_at, keys.c.id) < tuple_(last.created_at, last.id))
            return _read(connection, *where, newest=limit)

    def read_epoch(self) -> int:
        """A number that changes with every change of a key."""
        return self._database.read_epoch()

    @property
    def is_open(self) -> bool:
        """Whether the database has answered since this store was made."""
        return self._database.is_open

    def stamp(self, now: float) -> Stamp | None:
        """A stamp that stays the same while nothing is written; None if only the epoch is reliable."""
        return stamp(self._url, now)

    def read_live(self, now: float) -> LiveKeys:
        """The keys that are neither revoked, blocked nor expired."""
        with self._database.transaction() as connection:
            return self._read_live(connection, now)

    def read_changes(self, seen: LiveKeys, now: float) -> LiveKeys:
        """What `read_live` returns, but only the keys that changed since an earlier reading are read.

        All are read if the database does not continue the earlier reading, and once in `MOST_STORED` changes: that
        removes the keys that have expired.
        """
        with self._database.transaction() as connection:
            # The epoch first: a change in between is then read twice, and not missed.
            epoch = self._database.checked_epoch(connection)
            changes = changed_since(connection, seen.position, epoch)
            if changes is None or changes[0].number - seen.all_at >= MOST_STORED:
                other = not has_history_of(connection, seen.position)
                return self._read_live(connection, now)._replace(is_other=other)
            at, ids = changes
            valid = _records(connection, _live(now).where(keys.c.id.in_(ids)))
            changed = ids - {TEAMS_CHANGED}
            records = overlay(seen.records).changed({key_id: valid.get(key_id) for key_id in changed})
            stored_teams = read_teams(connection) if TEAMS_CHANGED in ids else seen.teams
            ended = _ended(connection, now, keys.c.id.in_(ids))
            ended += tuple(record for record in seen.ended if record.principal.key_id not in ids)
            return LiveKeys(at, records, stored_teams, ended[:MOST_ENDED], changed, all_at=seen.all_at)

    def _read_live(self, connection: Connection, now: float) -> LiveKeys:
        at = position(connection, self._database.checked_epoch(connection))
        ended = _ended(connection, now)
        return LiveKeys(at, _records(connection, _live(now)), read_teams(connection), ended, all_at=at.number)

    # ── the audit log ─────────────────────────────────────────────────────────────────────────────────

    def note(self, acts: Sequence[tuple[float, Act]]) -> None:
        """Write acts that change nothing in this database, each with its Unix seconds, in one transaction."""
        with self._database.change(moves_epoch=False) as connection:
            for now, act in acts:
                self._audit(connection, act, now)

    def read_audit(
        self, limit: int, before: int | None = None, filters: Mapping[str, str] | None = None
    ) -> list[AuditEntry]:
        """The newest entries, newest first; only those numbered below `before`, and with the texts of `filters`."""
        with self._database.transaction() as connection:
            return audit.read(connection, limit, before, filters)

    def verify_audit(self, head: str | None = None) -> Verdict:
        """Whether the log is intact, and still contains an earlier head."""
        with self._database.transaction() as connection:
            result = audit.verify(connection, self.pepper)
            if head is not None and not result.problem and not audit.holds(connection, head):
                return result._replace(problem=f"{head} is no longer in the log")
            return result

    def close(self) -> None:
        """Close pooled connections."""
        self._database.close()

    def _insert(self, connection: Connection, key: ApiKey, row: dict[str, Any], now: float) -> None:
        made = {"id": key.id, "hash": digest(self.pepper, key.plaintext).hex(), "created_at": now}
        connection.execute(insert(keys).values(row | made))

    def _audit(self, connection: Connection, act: Act, now: float) -> None:
        audit.append(connection, self.pepper, act, now)


def _make_room(connection: Connection, tenant: str, now: float, most: int | None, *, rotates: bool) -> None:
    """Bound the rows of a tenant before one more is added; None for no bound. Raises `TooManyKeys`.

    A tenant has `most` valid keys, and as many that were replaced and are valid until their overlap ends. Of its ended
    keys the newest `most` stay: the audit log has them all.
    """
    if most is None:
        return
    valid = keys.c.revoked_at.is_(None) & or_(keys.c.expires_at.is_(None), keys.c.expires_at > now)
    own = keys.c.tenant == tenant
    count = select(func.count()).select_from(keys).where(own, valid)
    if not rotates:
        count = count.where(keys.c.replaced_by.is_(None))
    if connection.execute(count).scalar_one() >= (2 * most if rotates else most):
        raise TooManyKeys(f"the tenant {tenant} has {most} valid keys, as many as it may have: revoke one first")
    ended = select(keys.c.id).where(own, ~valid).order_by(keys.c.created_at.desc(), keys.c.id).offset(most)
    old = connection.execute(ended).scalars().all()
    for table, column in ((team_keys, team_keys.c.key_id), (keys, keys.c.id)):
        if old:
            connection.execute(delete(table).where(column.in_(old)))


def _read(connection: Connection, *where: ColumnElement[bool], newest: int | None = None) -> tuple[StoredKey, ...]:
    """Keys, oldest first; or so many of the newest, newest first."""
    query = _with_team(*(column for column in keys.c if column.name != "hash")).where(*where)
    if newest is None:
        query = query.order_by(keys.c.created_at, keys.c.id)
    else:
        query = query.order_by(keys.c.created_at.desc(), keys.c.id.desc()).limit(newest)
    rows = connection.execute(query).mappings()
    return tuple(
        StoredKey(**{**row, "scopes": _object(row["scopes"]), "labels": _object(row["labels"])}) for row in rows
    )


def _live(now: float) -> Select[Any]:
    return _with_team(*keys.c).where(
        keys.c.revoked_at.is_(None),
        keys.c.blocked_at.is_(None),
        or_(keys.c.expires_at.is_(None), keys.c.expires_at > now),
    )


def _ended(connection: Connection, now: float, *tests: ColumnElement[bool]) -> tuple[KeyRecord, ...]:
    """The keys that ended or were blocked last, at most `MOST_ENDED`."""
    ended = or_(keys.c.revoked_at.is_not(None), keys.c.blocked_at.is_not(None), keys.c.expires_at <= now)
    query = _with_team(*keys.c).where(ended, *tests)
    end = func.coalesce(keys.c.revoked_at, keys.c.blocked_at, keys.c.expires_at)
    return tuple(map(_record, connection.execute(query.order_by(end.desc()).limit(MOST_ENDED))))


def _with_team(*columns: Any) -> Select[Any]:
    """The columns of keys with their team, which is empty without one."""
    team = func.coalesce(team_keys.c.team, "").label("team")
    return select(*columns, team).select_from(keys.outerjoin(team_keys, team_keys.c.key_id == keys.c.id))


def _find(connection: Connection, key_id: str, tenant: str | None = None) -> StoredKey:
    matching = _read(connection, keys.c.id == key_id)
    if not matching or tenant not in (None, matching[0].tenant):
        raise NoSuchKey(f"no issued key has the id {key_id!r}")
    return matching[0]


def _object(text: str | None) -> dict[str, Any]:
    return json.loads(text) if text else {}


def _columns(grant: GrantConfig) -> dict[str, str | None]:
    scopes = None if grant.scopes is None else json.dumps(grant.scopes.model_dump(mode="json", exclude_none=True))
    return {"role": grant.role, "scopes": scopes, "labels": json.dumps(grant.labels) if grant.labels else None}


def _records(connection: Connection, query: Select[Any]) -> dict[str, KeyRecord]:
    return {row.id: _record(row) for row in connection.execute(query)}


def _record(row: Row[Any]) -> KeyRecord:
    roles = USER if row.role == "user" else USER | {row.role}
    rights = roles, _labels(row.labels), _scope(row.scopes), row.team
    principal = Principal(row.tenant, row.id, *rights, lineage=row.lineage or "")
    end = math.inf if row.expires_at is None else row.expires_at
    ends = row.revoked_at is not None, row.blocked_at is not None
    return KeyRecord(principal, bytes.fromhex(row.hash), end, row.replaced_by or "", *ends)


# Many keys have the same attributes.
@lru_cache(maxsize=1024)
def _scope(text: str | None) -> Scope | None:
    return Scope(**json.loads(text)) if text else None


@lru_cache(maxsize=1024)
def _labels(text: str | None) -> Mapping[str, str]:
    return MappingProxyType(json.loads(text)) if text else NO_LABELS
