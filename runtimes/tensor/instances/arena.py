"""Memory that two processes share: one writes, the other reads, never both at a time."""

from __future__ import annotations

import errno
import mmap
import os
import threading
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_STEP = 1024 * 1024


class Arena:
    """A file without a name that grows on demand and is reused. The other side opens it by `fd`.

    One packet at a time: data read from it becomes invalid when the writer writes again.
    """

    def __init__(self, fd: int | None = None) -> None:
        self.fd = os.memfd_create("headrace-tensors") if fd is None else fd
        self._bytes: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        self._lock = threading.Lock()  # a large write is on a thread, and the process may die meanwhile

    def write(self, pieces: Sequence[npt.NDArray[np.generic] | bytes], size: int) -> None:
        """Put pieces one after the other, growing first. Raises OSError when there is no memory for it."""
        with self._lock:
            if size > len(self._bytes):
                if self.fd < 0:
                    raise OSError(errno.EBADF, "it is closed")
                # Allocated now: a page that the system cannot provide at its first use ends the process.
                os.posix_fallocate(self.fd, 0, size + -size % _STEP)
                self._open()
            offset = 0
            for piece in pieces:
                flat = np.frombuffer(piece, np.uint8) if isinstance(piece, bytes) else piece.reshape(-1).view(np.uint8)
                self._bytes[offset : offset + flat.size] = flat
                offset += flat.size

    def read(self, size: int) -> memoryview:
        """The first `size` bytes, writable."""
        if size > len(self._bytes):
            self._open()
        return self._bytes[:size].data

    def copy(self, size: int) -> bytes:
        """The first `size` bytes. Does not hold Python's lock for as long as it takes."""
        with self._lock:
            return os.pread(self.fd, size, 0)

    def _open(self) -> None:
        # Views of the old mapping keep it for as long as they live.
        self._bytes = np.frombuffer(mmap.mmap(self.fd, os.fstat(self.fd).st_size), np.uint8)

    def close(self) -> None:
        with self._lock:
            os.close(self.fd)
            self.fd = -1
            self._bytes = np.empty(0, np.uint8)
