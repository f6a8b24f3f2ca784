"""The table in shared memory in which all workers count limits, and the amounts that each worker holds.

One file in memory, with rows of words. A row is one subject of one limit; beside it each process has a column for the
amounts that it holds of the row, so that those of a dead process can be released. Words are written one at a time under
the row's lock, after a copy of row and column has been written to the writer's journal: a process that takes a lock
over from a dead one restores that copy, which undoes the unfinished change.
"""

import mmap
import os
import secrets
import time
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import blake2b
from math import inf
from typing import Any

from gateway.limits import mutexes
from gateway.limits.drawn import UNITS
from gateway.limits.mutexes import LimitsUnavailable, Mutexes

# ── words of a row ────────────────────────────────────────────────────────────────────────────────────────
KEY = 0  # two words; 0 for a free row
IN_FLIGHT = 2
IDLE_AT, IDLE_UTC = 3, 4  # when a new row would grant the same, by both clocks
LONGEST = 5  # period of the rates
USED = 6  # of the budget: low word, high word
WINDOW, START, END, PERIOD = 8, 9, 10, 11
RATES = 12  # of each unit: level, at, capacity
ROW = 28
# ── words of a column ─────────────────────────────────────────────────────────────────────────────────────
HELD = 0  # in flight
# 1 to 4: the reserved amount of each unit that is settled, by its index in `Amounts`
HELD_PICOS, HELD_WINDOW = 5, 7
COLUMN = 8
# ── words of a journal: the row's number + 1, the process of the column, and both as they were before ─────
JOURNAL = 64

ELSEWHERE = 3 * UNITS
"""Words of a row behind all rows. Of each unit: since which slot draws of other ledgers are included, and how much."""
STRIPES = 256
"""Number of row locks; a row's lock is its number modulo that."""
PROBED = 32
"""A key's row is one of this many, from the key's own number on."""
FEW, MANY = 2**14, 2**16
"""Rows for tenants and models, whose number the configuration bounds, and for keys and users, which vary."""
_MAGIC = 0x4845_4144_5241_4345
_HEADER = 64

Key = tuple[int, int]


class SharedTable:
    """The table in one process. `create` in the parent of all processes, `attach` in each of them."""

    def __init__(self, fd: int, workers: int, few: int, many: int, me: int) -> None:
        self.fd = fd
        self.me = me
        self.workers = workers
        self._few, self._many = few, many
        rows, self._columns = few + many, self.journal_offset(workers + 1)
        self._rows = self._columns + (workers + 1) * rows * COLUMN * 8
        self._elsewhere = self._rows + rows * ROW * 8
        size = self._elsewhere + rows * ELSEWHERE * 8
        if os.fstat(fd).st_size < size:
            os.ftruncate(fd, size)  # a sparse file: a page exists after its first write
        self.memory = mmap.mmap(fd, size)
        self._bytes = memoryview(self.memory)
        self._locks = Mutexes(self.memory, _HEADER, STRIPES + 1, me + 1, self._undo)
        self.lock, self.unlock = self._locks.lock, self._locks.unlock  # of a stripe
        self._journal, self._old_row, self._old_column = self._journal_of(me)
        self.wall: Callable[[], float] = time.time
        self.late: list[Callable[[], None]] = []
        """Settlements that are pending because their lock was not available."""

    @classmethod
    def create(cls, workers: int, *, few: int = FEW, many: int = MANY) -> "SharedTable":
        """Create a table for `workers` processes at most. Children inherit `fd` and attach to it."""
        if not hasattr(os, "memfd_create"):
            raise OSError("several workers can share limits on Linux only")
        fd = os.memfd_create("headrace-limits", 0)
        os.set_inheritable(fd, True)
        table = cls(fd, workers, few, many, workers)
        table._locks.make()
        header = table._bytes[:_HEADER].cast("Q")
        header[4], header[5] = secrets.randbits(64), secrets.randbits(64)
        header[1], header[2], header[3], header[0] = workers, few, many, _MAGIC
        return table

    @classmethod
    def attach(cls, source: int | str | os.PathLike[str], *, worker: int) -> "SharedTable":
        """Attach as process number `worker`, which no other live process is.

        Releases the amounts that the number held before.
        """
        fd = os.dup(source) if isinstance(source, int) else os.open(source, os.O_RDWR | os.O_CLOEXEC)
        magic, workers, few, many = memoryview(os.pread(fd, 32, 0).ljust(32, b"\0")).cast("Q")
        if magic != _MAGIC:
            os.close(fd)
            raise ValueError("this is not a table of limits")
        if not 0 <= worker < workers:
            os.close(fd)
            raise ValueError(f"the table is for workers 0 to {workers - 1}")
        table = cls(fd, workers, few, many, worker)
        table.release_worker(worker)
        return table

    def close(self) -> None:
        """Close the descriptor: the memory is released with the process."""
        os.close(self.fd)

    def settle_late(self) -> None:
        """Retry the pending settlements. Those that still fail stay."""
        late, self.late = self.late, []
        for settle in late:
            settle()

    # ── rows ──────────────────────────────────────────────────────────────────────────────────────────

    def views(self, row: int, worker: int | None = None) -> tuple[memoryview, memoryview]:
        """The bytes of a row, and of a process's column of it."""
        start, column = self.offsets(row, self.me if worker is None else worker)
        return self._bytes[start : start + ROW * 8], self._bytes[column : column + COLUMN * 8]

    @property
    def name(self) -> str:
        """A name that no other table has."""
        return self._bytes[32:48].hex()

    def elsewhere(self, row: int) -> memoryview:
        """The words of a row for the draws of other ledgers."""
        start = self._elsewhere + row * ELSEWHERE * 8
        return self._bytes[start : start + ELSEWHERE * 8].cast("Q")

    def offsets(self, row: int, worker: int) -> tuple[int, int]:
        """Where a row, and a process's column of it, begin in the memory."""
        return self._rows + row * ROW * 8, self._columns + (worker * (self._few + self._many) + row) * COLUMN * 8

    def key(self, scope: str, subject: str) -> Key:
        """The key of a subject under a limit. Never two zeros."""
        digest = blake2b(f"{scope}\0{subject}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
        return int.from_bytes(digest[:8], "little") | 1, int.from_bytes(digest[8:], "little")

    def find(self, key: Key, scope: str, *, lasting: bool, now: float, utc: float) -> int | None:
        """The number of the key's row, which may be new; None if there is no room.

        An idle row is equivalent to a new one, so it makes room. Keys and users of one limit use at most a quarter of
        the rows, so that the invented names of one tenant cannot displace all others.
        """
        self.lock(STRIPES)
        try:
            free = None
            for row in self._probe(key, scope, lasting=lasting):
                q = self._words(row)
                if q[KEY] == key[0] and q[KEY + 1] == key[1]:
                    return row
                if free is None and self._is_free(q, now, utc):
                    free = row
            return free if free is None or self._claim(free, key, now, utc) else None
        finally:
            self.unlock(STRIPES)

    def _probe(self, key: Key, scope: str, *, lasting: bool) -> Iterator[int]:
        if lasting:
            return ((key[1] + i) % self._few for i in range(min(PROBED, self._few)))
        base = self.key(scope, "")[1] + key[1] % max(1, self._many // 4)
        return (self._few + (base + i) % self._many for i in range(min(PROBED, self._many)))

    def _words(self, row: int) -> memoryview:
        return self.views(row)[0].cast("Q")

    def _is_free(self, q: memoryview, now: float, utc: float) -> bool:
        if q[KEY] == 0:
            return True
        d = q.cast("B").cast("d")
        return q[IN_FLIGHT] == 0 and bool(d[IDLE_AT] <= now and d[IDLE_UTC] <= utc)

    def _claim(self, row: int, key: Key, now: float, utc: float) -> bool:
        """Claim a row. If the process is killed in the middle, the row is free, or it belongs to the key and has only
        zeros."""
        self.lock(row % STRIPES)
        try:
            q = self._words(row)
            if not self._is_free(q, now, utc):
                return False
            q[KEY] = 0
            for i in range(1, ROW):
                q[i] = 0
            self.elsewhere(row).cast("B")[:] = bytes(ELSEWHERE * 8)
            q[KEY + 1] = key[1]
            q[KEY] = key[0]
            return True
        finally:
            self.unlock(row % STRIPES)

    # ── writing ─────────────────────────────────────────────────────────────────────────────────────────

    def _journal_of(self, worker: int) -> tuple[memoryview, memoryview, memoryview]:
        """The journal of a process: two words, the first of which is 0 while no write is in progress, and the old row
        and column."""
        start = self.journal_offset(worker)
        row = start + 16
        column = row + ROW * 8
        words = self._bytes[start:row].cast("Q")
        return words, self._bytes[row:column], self._bytes[column : column + COLUMN * 8]

    def journal_offset(self, worker: int) -> int:
        """Where the journal of a process begins in the memory."""
        return lock_offset(STRIPES + 1) + worker * JOURNAL * 8

    def begin(self, row: int, worker: int, base: memoryview, column: memoryview) -> None:
        """Begin a change: until `commit` the old row and column count if this process dies. Its lock is held."""
        self._old_row[:] = base
        self._old_column[:] = column
        journal = self._journal
        journal[1] = worker
        journal[0] = row + 1

    def commit(self) -> None:
        """End a change: the writes since `begin` count."""
        self._journal[0] = 0

    def _undo(self, owner: int) -> None:
        """Restore the row of a process that died in the middle of a change. Its lock is held."""
        journal, old_row, old_column = self._journal_of(owner - 1)
        if journal[0]:
            row, column = self.views(journal[0] - 1, journal[1])
            row[:], column[:] = old_row, old_column
            journal[0] = 0

    # ── dead processes ────────────────────────────────────────────────────────────────────────────────────

    def release_worker(self, worker: int, now: float | None = None) -> bool:
        """Release the amounts that a dead process held: its requests in flight, and their reservations.

        True when all are released; False if a row was locked for too long: call again.
        """
        now = time.monotonic() if now is None else now
        done = True
        for stripe in (i for i, owner in enumerate(self._locks.owners) if owner == worker + 1):
            done &= self._attempt(partial(self.lock, stripe), stripe)
        for row in self._held(worker):
            done &= self._attempt(partial(self._release, row, worker, now), row % STRIPES)
        return done

    def _attempt(self, work: Callable[[], Any], stripe: int) -> bool:
        try:
            work()
        except LimitsUnavailable:
            return False
        self.unlock(stripe)
        return True

    def _held(self, worker: int) -> list[int]:
        """The rows in which a process holds an amount.

        Read from the file, since reading a hole through the mapping would fill it.
        """
        size = (self._few + self._many) * COLUMN * 8
        column = memoryview(os.pread(self.fd, size, self._columns + worker * size)).cast("Q")
        return [row for row, held in enumerate(column[HELD::COLUMN].tolist()) if held]

    def _release(self, row: int, worker: int, now: float) -> None:
        self.lock(row % STRIPES)
        base, column = self.views(row, worker)
        q, d, held, reserved = base.cast("Q"), base.cast("d"), column.cast("Q"), column.cast("d")
        self.begin(row, worker, base, column)
        q[IN_FLIGHT] -= min(q[IN_FLIGHT], held[HELD])
        used = 0.0  # the largest share of a rate
        for i in range(RATES, RATES + 15, 3):
            if capacity := d[i + 2]:
                if i > RATES:  # a request stays counted
                    d[i] = min(capacity, d[i] + reserved[(i - RATES) // 3])
                used = max(used, (capacity - d[i]) / capacity)
        if held[HELD_WINDOW] == q[WINDOW]:
            set_wide(q, USED, max(0, wide(q, USED) - wide(held, HELD_PICOS)))
        d[IDLE_AT] = now + used * d[LONGEST] if q[IN_FLIGHT] == 0 else inf
        d[IDLE_UTC] = d[END] if wide(q, USED) else 0.0
        column[:] = bytes(COLUMN * 8)
        self.commit()


def lock_offset(stripe: int) -> int:
    """Where the lock of a stripe begins in the memory."""
    return _HEADER + stripe * mutexes.SIZE


def wide(q: memoryview, i: int) -> int:
    """A whole number of 128 bits."""
    return int(q[i] | q[i + 1] << 64)


def set_wide(q: memoryview, i: int, value: int) -> None:
    q[i], q[i + 1] = value & 0xFFFF_FFFF_FFFF_FFFF, value >> 64
