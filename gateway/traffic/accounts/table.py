"""The words of accounts, in memory that the workers of a gateway share.

A row is one model at one account. Its words are read and written one at a time: a value that is a moment old does no
harm. What a worker has reserved is in words that only this worker writes, and it is released when the worker has ended.
Rows change their owner, and the counts of configured limits change, under a lock.
"""

import fcntl
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import TypeAlias

Words: TypeAlias = "memoryview[float]"
UNITS = 3
"""Of a worker: reserved requests, prompt tokens and completion tokens."""
KEY, USED_AT, REST_UNTIL, REFUSALS, CAUSE = range(5)
"""The first words of a row: the name of its account and model, 0 for a free row; when it was last used; the end of its
pause; refusals since the last answer; the position of their cause."""
BUCKETS = 8
"""The first word of the buckets."""
WORDS = 32
ROWS = 2048
"""The most models of all accounts together. Beyond it, one that is idle makes place."""
PROBED = 16
"""A row is one of this many, from the number of its name on."""
IDLE_SECONDS = 300.0
"""Time without a request after which a row may be given to another model."""


class AccountTable:
    """Without a file descriptor, the table of this process alone."""

    def __init__(self, fd: int = -1, *, workers: int = 1, me: int = 0, rows: int = ROWS) -> None:
        """`fd` is memory that all processes have. `me` is the number of this one, of `workers`."""
        self.rows = rows
        self._width = WORDS + workers * UNITS
        self._workers = workers
        self._me = me
        self._fd = fd
        size = rows * self._width * 8
        if fd < 0:
            self._words: Words = memoryview(bytearray(size)).cast("d")
            return
        if os.fstat(fd).st_size < size:
            os.ftruncate(fd, size)  # sparse: a page exists after its first write
        self._words = memoryview(mmap.mmap(fd, size)).cast("d")

    @classmethod
    def release(cls, fd: int, worker: int, workers: int) -> None:
        """Release what a worker had reserved that has ended."""
        table = cls(fd, workers=workers, me=worker)
        for row in range(table.rows):
            table._clear(row)

    def _clear(self, row: int) -> None:
        if self._words[row * self._width]:
            at = row * self._width + WORDS + self._me * UNITS
            for word in range(at, at + UNITS):
                self._words[word] = 0.0

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Alone with the table, for a change of several words. The system releases the lock of a process that ends."""
        if self._fd < 0:
            yield
            return
        fcntl.lockf(self._fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN)

    def words(self, row: int) -> Words:
        """The words of a row, which all processes share."""
        at = row * self._width
        return self._words[at : at + WORDS]

    def reserved(self, row: int) -> tuple[Words, Words]:
        """What this process has reserved, and what all processes have: `UNITS` words for each."""
        at = row * self._width + WORDS
        own = at + self._me * UNITS
        return self._words[own : own + UNITS], self._words[at : at + self._workers * UNITS]

    def find(self, name: str) -> int | None:
        """The row of a name; None without one."""
        key = key_of(name)
        return next((row for row in self._probed(key) if self._words[row * self._width] == key), None)

    def claim(self, name: str, now: float, is_idle: Callable[[int], bool]) -> int | None:
        """The row of a name, new if it has none; None if all rows that it may have are in use."""
        if (present := self.find(name)) is not None:
            return present
        key = key_of(name)
        with self.locked():
            if (present := self.find(name)) is not None:  # another process was faster
                return present
            free = [row for row in self._probed(key) if not self._words[row * self._width]]
            row = free[0] if free else next((row for row in self._probed(key) if is_idle(row)), None)
            if row is None:
                return None
            words = self.words(row)
            for word in range(WORDS):
                words[word] = 0.0
            words[USED_AT] = now
            words[KEY] = key
            return row

    def _probed(self, key: float) -> Iterator[int]:
        first = int(key) % self.rows
        return ((first + step) % self.rows for step in range(PROBED))


def key_of(name: str) -> float:
    """A number for a name, never 0, which a float holds exactly."""
    return float(int.from_bytes(blake2b(name.encode(errors="surrogatepass"), digest_size=6).digest(), "big") + 1)
