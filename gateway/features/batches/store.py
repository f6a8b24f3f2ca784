"""Files and batches in the state database. Every method blocks: call it in a thread.

A method with a tenant or a principal reads and changes rows of that tenant only. A principal whose scope has models
sees results of these models only. Expired files are hidden. Methods raise `StoreUnavailable` and `StoreMismatch`.
"""

import json
from collections.abc import Callable
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, Select, delete, func, insert, select, update

from gateway.auth.keys import Principal
from gateway.auth.state import StateDatabase
from gateway.features.batches.rows import BatchSpec, StoredBatch, StoredFile, decode_progress, decode_spec, encode
from gateway.features.batches.schema import BATCHES, batches, files, tasks
from gateway.features.batches.tasks import EXAMINE, FINISH, NEW_TASK, shards_in
from gateway.features.quota.meter import ROW_BYTES
from gateway.features.quota.room import Quota, check_room, default_quota, require_room
from policies.batches.states import ENDED, BatchProgress, add_shards, may_cancel

_FILE = (
    files.c.id, files.c.tenant, files.c.purpose, files.c.filename, files.c.bytes, files.c.created_at,
    files.c.expires_at, files.c.models,
)  # fmt: skip

T = TypeVar("T")
HIDDEN = "message_batch"
"""The purpose of the input of Anthropic's batches, which has no file of the client."""


class TooMany(Exception):
    """The tenant has as many as it may have."""


class BatchStore:
    """The files and batches of one state database. Creates missing tables when it opens."""

    def __init__(self, url: str, pepper: bytes, quota: Quota = default_quota) -> None:
        """`url` is an SQLAlchemy URL. Raises `StateConfigError` for one that cannot be used."""
        self._quota = quota
        self.database = StateDatabase(url, pepper, BATCHES)

    def close(self) -> None:
        """Close pooled connections."""
        self.database.close()

    def read(self, query: Callable[[Connection], T]) -> T:
        """Run a query in a transaction."""
        with self.database.transaction() as connection:
            return query(connection)

    # ── files ─────────────────────────────────────────────────────────────────────────────────────────

    def check_room(self, tenant: str, size: int) -> None:
        """Whether a tenant may store `size` more bytes now. Raises `StorageFull`."""
        with self.database.transaction() as connection:
            check_room(connection, tenant, size, self._quota(tenant))

    def add_file(self, file: StoredFile) -> None:
        """Add a file whose content is stored. Raises `StorageFull`."""
        with self.database.change(moves_epoch=False) as connection:
            size = ROW_BYTES + len(file.filename.encode()) + file.bytes
            require_room(connection, file.tenant, size, self._quota(file.tenant))
            put_file(connection, file)

    def file(self, principal: Principal, id_: str, now: float) -> StoredFile | None:
        """One file."""
        query = select(*_FILE).where(files.c.tenant == principal.tenant, files.c.id == id_, files.c.expires_at > now)
        with self.database.transaction() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None or not _sees_file(principal, row) else StoredFile(*row)

    def file_page(
        self, principal: Principal, purpose: str | None, after: str | None, limit: int, now: float, *, ascending: bool
    ) -> list[StoredFile] | None:
        """Files after a file; None if that file does not exist."""
        own = [files.c.tenant == principal.tenant, files.c.expires_at > now, files.c.purpose != HIDDEN]
        query = _page(select(*_FILE).where(*own), principal, limit)
        if purpose is not None:
            query = query.where(files.c.purpose == purpose)
        with self.database.transaction() as connection:
            if after is not None:
                last = connection.execute(select(files).where(*own, files.c.id == after)).one_or_none()
                if last is None or not _sees_file(principal, last):
                    return None
                query = query.where(files.c.number > last.number if ascending else files.c.number < last.number)
            query = query.order_by(files.c.number.asc() if ascending else files.c.number.desc())
            seen = (row for row in connection.execute(query) if _sees_file(principal, row))
            return [StoredFile(*row) for row in islice(seen, limit)]

    def delete_file(self, tenant: str, id_: str, now: float) -> bool:
        """Delete a file's row. Returns whether it existed."""
        with self.database.change(moves_epoch=False) as connection:
            gone = delete(files).where(files.c.tenant == tenant, files.c.id == id_, files.c.expires_at > now)
            return connection.execute(gone).rowcount > 0

    def expired_files(self, now: float, limit: int) -> list[str]:
        """Ids of expired files, to delete their content before their rows."""
        with self.database.transaction() as connection:
            return list(connection.execute(select(files.c.id).where(files.c.expires_at <= now).limit(limit)).scalars())

    def forget_files(self, ids: list[str]) -> None:
        """Delete the rows of files whose content is deleted."""
        with self.database.change(moves_epoch=False) as connection:
            connection.execute(delete(files).where(files.c.id.in_(ids)))

    # ── batches ───────────────────────────────────────────────────────────────────────────────────────

    def create(self, spec: BatchSpec, most_active: int, delete_at: float) -> StoredBatch:
        """Add a batch, whose input will be examined. Raises `TooMany` and `StorageFull`."""
        progress = BatchProgress(times={"validating": spec.created_at})
        row = {
            "id": spec.id, "tenant": spec.tenant, "api": spec.api, "status": progress.status, "tokens": 0,
            "expires_at": spec.expires_at, "delete_at": delete_at, "spec": encode(spec), "progress": encode(progress),
        }  # fmt: skip
        with self.database.change(moves_epoch=False) as connection:
            active = select(func.count()).where(batches.c.tenant == spec.tenant, batches.c.status.not_in(ENDED))
            if connection.execute(active).scalar_one() >= most_active:
                raise TooMany
            size = ROW_BYTES + len(str(row["spec"]).encode()) + len(str(row["progress"]))
            require_room(connection, spec.tenant, size, self._quota(spec.tenant))
            connection.execute(insert(batches).values(row))
            connection.execute(
                insert(tasks).values(batch=spec.id, number=EXAMINE, expires_at=spec.expires_at, **NEW_TASK)
            )
            return batch_of(connection, _one(connection, spec.tenant, spec.id))

    def batch(self, principal: Principal, id_: str, api: str) -> StoredBatch | None:
        """One batch."""
        with self.database.transaction() as connection:
            row = _one(connection, principal.tenant, id_)
            hidden = row is None or row.api != api or not _sees_batch(principal, row)
            return None if hidden else batch_of(connection, row)

    def page(
        self, principal: Principal, api: str, limit: int, after: str | None, before: str | None = None
    ) -> list[StoredBatch] | None:
        """Batches, newest first, after (or before) a batch; None if that batch does not exist."""
        own = (batches.c.tenant == principal.tenant, batches.c.api == api)
        query = _page(select(batches).where(*own), principal, limit)
        with self.database.transaction() as connection:
            for cursor, is_older in ((after, True), (before, False)):
                if cursor is None:
                    continue
                last = connection.execute(select(batches).where(*own, batches.c.id == cursor)).one_or_none()
                if last is None or not _sees_batch(principal, last):
                    return None
                query = query.where(batches.c.number < last.number if is_older else batches.c.number > last.number)
            newest_first = after is not None or before is None
            order = batches.c.number.desc() if newest_first else batches.c.number.asc()
            seen = (row for row in connection.execute(query.order_by(order)) if _sees_batch(principal, row))
            rows = list(islice(seen, limit))
            return [batch_of(connection, row) for row in (rows if newest_first else rows[::-1])]

    def cancel(self, principal: Principal, id_: str, api: str, now: float) -> StoredBatch | None:
        """Let no further line begin. A batch that has ended, or is ending, does not change."""

        def cancelling(progress: BatchProgress) -> None:
            if may_cancel(progress.status) and progress.status != "cancelling":
                progress.move("cancelling", now)

        with self.database.change(moves_epoch=False) as connection:
            row = _one(connection, principal.tenant, id_)
            if row is None or row.api != api or not _sees_batch(principal, row):
                return None
            change_progress(connection, id_, cancelling)
            return batch_of(connection, _one(connection, principal.tenant, id_))

    def delete_batch(self, tenant: str, id_: str, api: str) -> StoredBatch | None:
        """Delete a batch that has ended; None if there is none. One that has not ended is returned unchanged."""
        with self.database.change(moves_epoch=False) as connection:
            row = _one(connection, tenant, id_)
            if row is None or row.api != api:
                return None
            batch = batch_of(connection, row)
            if row.status in ENDED:
                connection.execute(delete(tasks).where(tasks.c.batch == id_))
                connection.execute(delete(batches).where(batches.c.id == id_))
            return batch

    def forget_batches(self, now: float) -> list[StoredBatch]:
        """Delete ended batches after their retention. Returns them."""
        with self.database.change(moves_epoch=False) as connection:
            old = select(batches).where(batches.c.delete_at <= now, batches.c.status.in_(ENDED)).limit(100)
            gone = [batch_of(connection, row) for row in connection.execute(old).all()]
            ids = [each.spec.id for each in gone]
            connection.execute(delete(tasks).where(tasks.c.batch.in_(ids)))
            connection.execute(delete(batches).where(batches.c.id.in_(ids)))
        return gone

    def active(self) -> list[tuple[str, str, int, int]]:
        """Tenant, status, lines and ended lines of each unfinished batch, for metrics."""
        with self.database.transaction() as connection:
            rows = connection.execute(select(batches).where(batches.c.status.not_in(ENDED)).limit(1000)).all()
            stored = [batch_of(connection, row) for row in rows]
        return [
            (each.spec.tenant, each.progress.status, each.progress.total,
             each.progress.succeeded + each.progress.failed)
            for each in stored
        ]  # fmt: skip


def _page(query: "Select[Any]", principal: Principal, limit: int) -> "Select[Any]":
    """The query of a page. With a scope of models, the rows of other models are left out afterwards."""
    restricted = principal.scope is not None and principal.scope.restricts_models
    return query if restricted else query.limit(limit)


def _sees_batch(principal: Principal, row: Any) -> bool:
    return principal.scope is None or principal.scope.allows_models(decode_spec(row.spec).holder.models)


def _sees_file(principal: Principal, row: Any) -> bool:
    return principal.scope is None or principal.scope.allows_models(json.loads(row.models or "[]"))


def put_file(connection: Connection, file: StoredFile) -> None:
    """Add a file, or replace the row of the same id."""
    connection.execute(delete(files).where(files.c.id == file.id))
    connection.execute(insert(files).values(file._asdict()))


def change_progress(connection: Connection, id_: str, change: Callable[[BatchProgress], None]) -> BatchProgress:
    """Change the state of a batch in a transaction that excludes other writers."""
    progress = decode_progress(connection.execute(select(batches.c.progress).where(batches.c.id == id_)).scalar_one())
    change(progress)
    tokens = 0 if progress.status in ENDED else progress.tokens
    values = {"status": progress.status, "progress": encode(progress), "tokens": tokens}
    connection.execute(update(batches).where(batches.c.id == id_).values(values))
    return progress


def _one(connection: Connection, tenant: str, id_: str) -> "Row[tuple[object, ...]] | None":
    query = select(batches).where(batches.c.tenant == tenant, batches.c.id == id_)
    return connection.execute(query).one_or_none()


def batch_of(connection: Connection, row: "Row[tuple[object, ...]] | None") -> StoredBatch:
    """A batch with the counts of its shards, which change before its own row does."""
    assert row is not None
    spec, progress = decode_spec(row.spec), decode_progress(row.progress)
    if row.status not in ENDED:
        add_shards(progress, [counts for _, counts in shards_in(connection, spec.id)])
    return StoredBatch(row.number, spec, progress)


__all__ = ["FINISH", "BatchStore", "TooMany", "batch_of", "change_progress", "put_file"]
