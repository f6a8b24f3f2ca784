"""Memory that glibc keeps after it was freed, given back to the system.

Bodies and pieces of streams of all sizes leave free memory in the middle of glibc's heap. glibc returns only what is
free at its end, so that a process stays as large as it ever was: `malloc_trim` returns the rest.
"""

import asyncio
import ctypes

INTERVAL = 5.0
"""Seconds between two looks."""
WORTH_BYTES = 32 * 1024 * 1024
"""Bytes that must have become free since the last look: less is used again soon."""


class _Info(ctypes.Structure):
    """`struct mallinfo2`."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    )  # fmt: skip


class Heap:
    """glibc's. Where the C library is another one, nothing is done."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None)
        try:
            self._info, self._trim = libc.mallinfo2, libc.malloc_trim
        except AttributeError:
            self.is_known = False
            return
        self.is_known = True
        self._info.restype = _Info
        self._trim.argtypes = [ctypes.c_size_t]
        self._trimmed = self.free_bytes  # pages that are trimmed are still free

    @property
    def free_bytes(self) -> int:
        """Bytes that are free in the heap, whether or not the system has them."""
        return int(self._info().fordblks)

    def trim(self) -> bool:
        """Give back what has become free, if that is worth it. To be called in a thread."""
        free = self.free_bytes
        self._trimmed = min(self._trimmed, free)
        if free < self._trimmed + WORTH_BYTES:
            return False
        self._trim(0)
        self._trimmed = self.free_bytes
        return True


async def keep_trimmed(interval: float = INTERVAL) -> None:
    """Give back memory now and then, until cancelled."""
    heap = Heap()
    while heap.is_known:
        await asyncio.sleep(interval)
        await asyncio.to_thread(heap.trim)
