"""The open connections of all workers, in shared memory, for the choice of the worker of a new connection.

A row is one worker. Each word has one writer, so there is no lock: a count that is a moment old does no harm.
"""

import math
import mmap
import os
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias, get_args

from config.schema.listen import ListenerKind

KINDS: tuple[ListenerKind, ...] = get_args(ListenerKind)
WORDS = 4
"""Of a worker and kind of listeners: its slot + 1, or 0 if it takes no connections; open connections; recent ones; when
these were counted."""
PERIOD = 300.0
"""Seconds in which the number of recent connections falls to 1/e."""
RECENT = 1 / 32
"""Weight of a recent connection. Without it a new worker, which has no open connection, would receive every connection
of clients that use a new one for each request, as long as other workers have idle ones."""
LEAD = 0.5
"""A worker that has this much more than another one gives it a new connection: one connection, or 16 recent ones."""

Words: TypeAlias = "memoryview[float]"


class WorkerWords(NamedTuple):
    """The row of a worker, and its words at a moment."""

    row: int
    slot: int
    opened: float
    recent: float
    at: float


class LoadTable:
    """`create` in the supervisor; a worker has the same file descriptor."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._memory = mmap.mmap(fd, 0)
        self._words = memoryview(self._memory).cast("d")
        self._rows = len(self._words) // (WORDS * len(KINDS))
        self._columns: list[Words] = []

    @classmethod
    def create(cls, rows: int) -> "LoadTable":
        """A table that children inherit. Raises `OSError`."""
        fd = os.memfd_create("headrace-loads", 0)
        os.set_inheritable(fd, True)
        os.ftruncate(fd, rows * WORDS * len(KINDS) * 8)
        return cls(fd)

    def loads(self, row: int, slot: int, kind: ListenerKind) -> "WorkerLoads":
        """The loads by connections of a kind, for the worker of a row."""
        first = KINDS.index(kind) * WORDS * self._rows
        columns = [self._words[at : at + self._rows] for at in range(first, first + WORDS * self._rows, self._rows)]
        self._columns += columns
        return WorkerLoads(columns, row, slot)

    def clear(self, row: int) -> None:
        """The worker of a row has ended."""
        for at in range(row, len(self._words), self._rows):
            self._words[at] = 0.0

    def close(self) -> None:
        """Close the table."""
        for each in (*self._columns, self._words):
            each.release()
        self._memory.close()
        os.close(self.fd)


class WorkerLoads:
    """The loads of all workers, for one of them, which writes its own row."""

    def __init__(
        self, columns: Sequence[Words], me: int, slot: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._slots, self._open, self._recent, self._at = columns
        self._me = me
        self._slot = slot
        self._clock = clock
        self._silent: set[WorkerWords] = set()
        """Workers that take nothing. Such a worker counts again when its words have changed."""

    def join(self) -> None:
        """Take connections."""
        self._open[self._me] = self._recent[self._me] = 0.0
        self._slots[self._me] = self._slot + 1.0

    def leave(self) -> None:
        """Take no more."""
        self._slots[self._me] = 0.0

    def hold(self, connections: int) -> None:
        """This worker has that number of open connections."""
        self._open[self._me] = connections

    def count(self) -> None:
        """Count a connection of this worker as a recent one."""
        now = self._clock()
        self._recent[self._me] = self._faded(self._me, now) + 1.0
        self._at[self._me] = now

    def _faded(self, row: int, now: float) -> float:
        return self._recent[row] * math.exp((self._at[row] - now) / PERIOD)

    def seen(self, row: int) -> WorkerWords:
        """The words of a worker."""
        return WorkerWords(row, int(self._slots[row]) - 1, self._open[row], self._recent[row], self._at[row])

    def silence(self, seen: WorkerWords) -> None:
        """A worker takes nothing: leave it out until its words change."""
        self._silent = {each for each in self._silent if each.row != seen.row} | {seen}

    def least(self, waiting: Callable[[int], int]) -> WorkerWords | None:
        """The worker for a new connection; None for this one. `waiting` are the connections on their way to a slot."""
        now = self._clock()
        others = [row for row, slot in enumerate(self._slots.tolist()) if slot and row != self._me]
        bound = self._open[self._me] + RECENT * self._faded(self._me, now) + waiting(self._slot) - LEAD
        loads = sorted((self._open[row] + RECENT * self._faded(row, now), row) for row in others)
        best = None
        for load, row in loads:
            if load >= bound:
                break
            seen = self.seen(row)
            if seen in self._silent:
                continue
            if (whole := load + waiting(seen.slot)) < bound:
                bound, best = whole, seen
        return best
