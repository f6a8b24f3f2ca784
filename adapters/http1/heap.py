"""The heap of a server: what the garbage collector examines, and memory that glibc retains after `free`.

Bodies and pieces of streams of all sizes leave free memory in the middle of glibc's heap. glibc returns only the free
memory at the end of the heap, so that a process never shrinks. `malloc_trim` returns the rest.
"""

import asyncio
import ctypes
import gc
from collections.abc import Callable

INTERVAL = 5.0
"""Seconds between two checks."""
WORTH_BYTES = 32 * 1024 * 1024
"""Bytes that must have become free since the last check; a smaller amount is soon reused."""

YOUNG_OBJECTS = 5000
"""New objects after which the cycles among them are collected: two milliseconds. Ended requests are counted and logged
in batches, which have more objects than Python's own 700: each batch was examined several times, and had no cycle."""


def freeze() -> None:
    """Exclude all objects of a process that has started from collections: its modules and parts stay."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])


class _Info(ctypes.Structure):
    """`struct mallinfo2`."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    )  # fmt: skip


class Heap:
    """The heap of glibc. With another C library, `is_supported` is False and nothing is trimmed."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None)
        try:
            self._info, self._trim = libc.mallinfo2, libc.malloc_trim
        except AttributeError:
            self.is_supported = False
            return
        self.is_supported = True
        self._info.restype = _Info
        self._trim.argtypes = [ctypes.c_size_t]
        self._trimmed = self.free_bytes  # trimmed pages still count as free

    @property
    def free_bytes(self) -> int:
        """Free bytes of the heap, including the bytes that were returned to the system."""
        return int(self._info().fordblks)

    def trim(self) -> bool:
        """Return free memory to the system if at least `WORTH_BYTES` became free. Call this method in a thread."""
        free = self.free_bytes
        self._trimmed = min(self._trimmed, free)
        if free < self._trimmed + WORTH_BYTES:
            return False
        self._trim(0)
        self._trimmed = self.free_bytes
        return True


def keep_trimmed(interval: float = INTERVAL) -> Callable[[], None]:
    """Return free memory to the system every `interval` seconds. Returns what ends it."""
    loop, heap = asyncio.get_running_loop(), Heap()
    timer: asyncio.TimerHandle

    def trim() -> None:
        nonlocal timer
        timer = loop.call_later(interval, trim)
        loop.run_in_executor(None, heap.trim)

    timer = loop.call_later(interval, trim)
    if not heap.is_supported:
        timer.cancel()
    return lambda: timer.cancel()
