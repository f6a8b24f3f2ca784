"""The units of work of batches, and their leases. Every method blocks: call it in a thread.

Every change of a holder names its token. The results that a replaced holder writes are in a log that nobody reads.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Connection, insert, select

from adapters.wire import decoding
from gateway.auth.state import StateDatabase
from gateway.features.batches.rows import BatchSpec, decode_spec, encode
from gateway.features.batches.schema import batches, tasks
from gateway.state.lease import Leases
from policies.batches.states import ShardCounts, Status

EXAMINE: Final = -1
FINISH: Final = 1_000_000_000
NEW_TASK: Final = {"done": 0, "holder": "", "token": 0, "beat": 0, "counts": "{}"}
_counts = msgspec.json.Decoder(ShardCounts)
_SCANNED = 500
log = logging.getLogger(__name__)


class Fenced(Exception):
    """Another gateway has taken the task over, or the batch is deleted."""


class Claim(NamedTuple):
    """A task that this process holds."""

    spec: BatchSpec
    number: int
    token: int
    counts: ShardCounts


class TaskLeases:
    """The tasks as one process sees them."""

    def __init__(self, database: StateDatabase, clock: Callable[[], float], takeover: float) -> None:
        """`takeover` is the number of seconds without a beat after which a holder is replaced."""
        self._database = database
        self._leases = Leases(tasks, clock, takeover, only=tasks.c.done == 0)
        self._unreadable = set[tuple[str, int]]()

    def claim(self, most: int) -> list[Claim]:
        """Take up to `most` tasks that nobody holds, those of the earliest deadlines first."""
        free = self._free()
        if not free or not most:
            return []
        claims: list[Claim] = []
        with self._database.change(moves_epoch=False) as connection:
            for batch, number in free:
                if len(claims) == most:
                    break
                own = (tasks.c.batch == batch, tasks.c.number == number, tasks.c.done == 0)
                row = connection.execute(select(tasks).where(*own)).one_or_none()
                claim = None if row is None or not self._leases.may_take(row) else self._take(connection, row)
                claims += [] if claim is None else [claim]
        return claims

    def beat(self, claims: Iterable[Claim]) -> dict[tuple[str, int], Status]:
        """Raise the beats. Returns the state of the batch of each task that this process still holds."""
        held: dict[tuple[str, int], Status] = {}
        with self._database.change(moves_epoch=False) as connection:
            for claim in claims:
                if self._leases.beat(connection, claim.spec.id, claim.number, token=claim.token):
                    status = select(batches.c.status).where(batches.c.id == claim.spec.id)
                    held[claim.spec.id, claim.number] = connection.execute(status).scalar_one()
        return held

    def release(self, claims: Iterable[Claim]) -> None:
        """Let another process take the tasks at once."""
        with self._database.change(moves_epoch=False) as connection:
            for claim in claims:
                self._leases.release(connection, claim.spec.id, claim.number, token=claim.token)

    def save(self, claim: Claim, change: Callable[[Connection], None], *, done: bool = False) -> None:
        """Store the counts of a task, and other changes in the same transaction. Raises `Fenced`."""
        with self._database.change(moves_epoch=False) as connection:
            key, values = (claim.spec.id, claim.number), {"counts": encode(claim.counts), "done": int(done)}
            if not self._leases.beat(connection, *key, token=claim.token, **values):
                raise Fenced
            change(connection)

    def _free(self) -> list[tuple[str, int]]:
        """Tasks that may be free. Only these cost a transaction that writes."""
        columns = (tasks.c.batch, tasks.c.number, tasks.c.holder, tasks.c.token, tasks.c.beat)
        query = select(*columns).where(tasks.c.done == 0).order_by(tasks.c.expires_at, tasks.c.batch, tasks.c.number)
        with self._database.transaction() as connection:
            rows = connection.execute(query.limit(_SCANNED)).all()
        free = [(row.batch, row.number) for row in rows if self._leases.may_take(row)]
        self._leases.forget_others({(row.batch, row.number) for row in rows})
        return free

    def _take(self, connection: Connection, row: Any) -> Claim | None:
        """Take a task. None for one that cannot be read, such as one of a newer version: all others are taken."""
        text = connection.execute(select(batches.c.spec).where(batches.c.id == row.batch)).scalar_one()
        try:
            spec, counts = decode_spec(text), _counts.decode(row.counts)
        except decoding.MALFORMED_JSON as error:
            if (key := (row.batch, row.number)) not in self._unreadable:
                self._unreadable.add(key)
                log.error("task %d of batch %s cannot be read, and waits: %s", row.number, row.batch, error)
            return None
        return Claim(spec, row.number, row.token + 1, counts) if self._leases.take(connection, row) else None


def add_task(connection: Connection, spec: BatchSpec, number: int) -> None:
    """Add a task to a batch."""
    row = {"batch": spec.id, "number": number, "expires_at": spec.expires_at, **NEW_TASK}
    connection.execute(insert(tasks).values(row))


def shards_in(connection: Connection, batch: str) -> list[tuple[int, ShardCounts]]:
    """The shards of a batch with their counts, in their order."""
    query = select(tasks.c.number, tasks.c.counts).where(
        tasks.c.batch == batch, tasks.c.number >= 0, tasks.c.number < FINISH
    )
    return [(row.number, _counts.decode(row.counts)) for row in connection.execute(query.order_by(tasks.c.number))]


def submitted_batches(connection: Connection) -> frozenset[str]:
    """The providers' ids of all submissions of unfinished shards."""
    query = select(tasks.c.counts).where(tasks.c.done == 0, tasks.c.counts.like('%"submissions":[{%'))
    counts = [_counts.decode(text) for text in connection.execute(query).scalars()]
    return frozenset(each.batch for shard in counts for each in shard.submissions if each.batch)


def open_shards(connection: Connection, batch: str) -> bool:
    """Whether a shard of the batch is not done."""
    query = select(tasks.c.number).where(
        tasks.c.batch == batch, tasks.c.number >= 0, tasks.c.number < FINISH, tasks.c.done == 0
    )
    return connection.execute(query.limit(1)).first() is not None
