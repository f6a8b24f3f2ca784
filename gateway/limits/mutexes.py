"""Mutexes in shared memory that are released when their process dies.

They are POSIX's robust mutexes: without contention a lock costs no system call, and if a process is killed between lock
and unlock, the kernel reports it to the next process that locks. A word beside each mutex contains its owner, so that
this process can undo the unfinished work.
"""

import ctypes
import errno
import mmap
import struct
import time
from collections.abc import Callable

from adapters.errors import CapacityError

SIZE = 64
"""The size of one mutex in bytes: at most 48 for the system's mutex, the last 8 for the owner's word."""
_OWNER = 7
_SHARED = _ROBUST = 1  # PTHREAD_PROCESS_SHARED, PTHREAD_MUTEX_ROBUST: the same with glibc and musl
PATIENCE = 1.0
"""Seconds that a lock is waited for. Locks are held for microseconds, so after that the owner is stopped or faulty."""
IMPATIENCE = 0.005
"""The shorter wait in seconds, after a wait has failed and until a lock is acquired again."""
_Timespec = struct.Struct("ll")


class LimitsUnavailable(CapacityError):
    """The usage cannot be read now, so no request can be granted."""

    code = "limits_unavailable"
    blames_endpoint = False
    retryable = False

    def __init__(self, retry_after: float = 1.0) -> None:
        super().__init__("The limits of this request cannot be counted at the moment.", retry_after=retry_after)


class Mutexes:
    """`count` mutexes at `offset` of a shared mapping, which begins with zeros. `me` is never 0.

    `undo` is called with the number of a process that died with a lock, while the lock is held.
    """

    def __init__(self, memory: mmap.mmap, offset: int, count: int, me: int, undo: Callable[[int], None]) -> None:
        self.owners = memoryview(memory)[offset : offset + count * SIZE].cast("Q")[_OWNER :: SIZE // 8]
        """The owner of each lock; 0 for a lock that is free, or whose owner has no unfinished work."""
        self._me = me
        self._undo = undo
        self._anchor = ctypes.c_char.from_buffer(memory, offset)
        start = ctypes.addressof(self._anchor)
        self._at = [ctypes.c_void_p(start + i * SIZE) for i in range(count)]
        self._lib = lib = ctypes.PyDLL(None)  # without releasing the GIL, which costs more than the call
        for function in (lib.pthread_mutex_trylock, lib.pthread_mutex_unlock, lib.pthread_mutex_consistent):
            function.argtypes = [ctypes.c_void_p]
        lib.pthread_mutex_timedlock.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
        self._trylock, self._unlock = lib.pthread_mutex_trylock, lib.pthread_mutex_unlock
        self._patience = PATIENCE

    def make(self) -> None:
        """Initialize the mutexes once, before any other process uses them."""
        attributes = ctypes.create_string_buffer(64)
        lib = self._lib
        failed = lib.pthread_mutexattr_init(attributes)
        failed = failed or lib.pthread_mutexattr_setpshared(attributes, _SHARED)
        failed = failed or lib.pthread_mutexattr_setrobust(attributes, _ROBUST)
        for address in self._at:
            failed = failed or lib.pthread_mutex_init(address, attributes)
        if failed:
            raise OSError(failed, "the system has no mutexes that survive their holder")

    def lock(self, i: int) -> None:
        """Lock a mutex. Raises `LimitsUnavailable`."""
        if status := self._trylock(self._at[i]):
            self._lock_slowly(i, status)
        if dead := self.owners[i]:
            self._undo(dead)
        self.owners[i] = self._me

    def _lock_slowly(self, i: int, status: int) -> None:
        lib, address = self._lib, self._at[i]
        if status == errno.EBUSY:
            end = time.time() + self._patience  # the clock of pthread_mutex_timedlock
            status = lib.pthread_mutex_timedlock(address, _Timespec.pack(int(end), int(end % 1 * 1e9)))
            self._patience = IMPATIENCE if status == errno.ETIMEDOUT else PATIENCE
        if status == errno.EOWNERDEAD:
            status = lib.pthread_mutex_consistent(address)
        if status:
            raise LimitsUnavailable

    def unlock(self, i: int) -> None:
        self.owners[i] = 0
        self._unlock(self._at[i])
