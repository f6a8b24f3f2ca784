"""The units of work of batches, and their fencing leases. Every method blocks: call it in a thread.

A holder raises the beat of its tasks; another gateway takes a task over when it has seen no new beat for some seconds
of its own monotonic clock, and raises the token. Every change of a holder names its token: a holder that was replaced
changes nothing, and the results that it writes afterwards are in a log that nobody reads.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Connection, insert, select, update

from adapters.wire import decoding
from gateway.auth.state import StateDatabase
from gateway.features.batches.rows import BatchSpec, decode_spec, encode
from gateway.features.batches.schema import batches, tasks
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

    def __init__(self, database: StateDatabase, holder: str, clock: Callable[[], float], takeover: float) -> None:
        """`takeover` is the number of seconds without a beat after which a holder is replaced."""
        self._takeover = takeover
        self._database = database
        self._holder = holder
        self._clock = clock
        self._seen: dict[tuple[str, int], tuple[tuple[str, int, int], float]] = {}
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
                row = connection.execute(select(tasks).where(*_is(batch, number), tasks.c.done == 0)).one_or_none()
                if row is not None and self._may_take(row) and (claim := self._take(connection, row)) is not None:
                    claims.append(claim)
        return claims

    def beat(self, claims: Iterable[Claim]) -> dict[tuple[str, int], Status]:
        """Raise the beats. Returns the state of the batch of each task that this process still holds."""
        held: dict[tuple[str, int], Status] = {}
        with self._database.change(moves_epoch=False) as connection:
            for claim in claims:
                change = update(tasks).where(*self._own(claim)).values(beat=tasks.c.beat + 1)
                if connection.execute(change).rowcount:
                    status = select(batches.c.status).where(batches.c.id == claim.spec.id)
                    held[claim.spec.id, claim.number] = connection.execute(status).scalar_one()
        return held

    def release(self, claims: Iterable[Claim]) -> None:
        """Let another process take the tasks at once."""
        with self._database.change(moves_epoch=False) as connection:
            for claim in claims:
                connection.execute(update(tasks).where(*self._own(claim)).values(holder=""))

    def save(self, claim: Claim, change: Callable[[Connection], None], *, done: bool = False) -> None:
        """Store the counts of a task, and other changes in the same transaction. Raises `Fenced`."""
        with self._database.change(moves_epoch=False) as connection:
            values = {"counts": encode(claim.counts), "beat": tasks.c.beat + 1, "done": int(done)}
            if not connection.execute(update(tasks).where(*self._own(claim)).values(values)).rowcount:
                raise Fenced
            change(connection)

    def _free(self) -> list[tuple[str, int]]:
        """Tasks that may be free. Only these cost a transaction that writes."""
        columns = (tasks.c.batch, tasks.c.number, tasks.c.holder, tasks.c.token, tasks.c.beat)
        query = select(*columns).where(tasks.c.done == 0).order_by(tasks.c.expires_at, tasks.c.batch, tasks.c.number)
        with self._database.transaction() as connection:
            rows = connection.execute(query.limit(_SCANNED)).all()
        free = [(row.batch, row.number) for row in rows if self._may_take(row)]
        present = {(row.batch, row.number) for row in rows}
        self._seen = {key: seen for key, seen in self._seen.items() if key in present}
        return free

    def _may_take(self, row: Any) -> bool:
        if row.holder == "":
            return True
        if row.holder == self._holder:
            return False
        state, now = (row.holder, row.token, row.beat), self._clock()
        seen, since = self._seen.get((row.batch, row.number), (None, now))
        if seen != state:
            self._seen[row.batch, row.number] = state, now
            return False
        return now - since >= self._takeover

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
        values = {"holder": self._holder, "token": row.token + 1, "beat": row.beat + 1}
        connection.execute(update(tasks).where(*_is(row.batch, row.number)).values(values))
        return Claim(spec, row.number, row.token + 1, counts)

    def _own(self, claim: Claim) -> tuple[Any, ...]:
        mine = (tasks.c.holder == self._holder, tasks.c.token == claim.token, tasks.c.done == 0)
        return (*_is(claim.spec.id, claim.number), *mine)


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


def _is(batch: str, number: int) -> tuple[Any, ...]:
    return tasks.c.batch == batch, tasks.c.number == number
