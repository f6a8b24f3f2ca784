"""The present step of a process, and the number of cancelled requests, in memory that the server shares.

The server reads the step when the process has died. Neither side waits for the other.
"""

from __future__ import annotations

import mmap
import os
import struct
from typing import Final

SIZE: Final = 4096
_STEP: Final = struct.Struct("<q")
_CANCELLED: Final = struct.Struct("<Q")
_AT_CANCELLED: Final = 64


class Progress:
    """The progress of one process. `step` is the step that computes, or -1."""

    def __init__(self, fd: int) -> None:
        """`fd` is a file in memory. Raises OSError."""
        if os.fstat(fd).st_size < SIZE:
            os.ftruncate(fd, SIZE)
            self._memory = mmap.mmap(fd, SIZE)
            self.step = -1
        else:
            self._memory = mmap.mmap(fd, SIZE)

    @property
    def step(self) -> int:
        number: int = _STEP.unpack_from(self._memory)[0]
        return number

    @step.setter
    def step(self, number: int) -> None:
        _STEP.pack_into(self._memory, 0, number)

    @property
    def cancelled(self) -> int:
        count: int = _CANCELLED.unpack_from(self._memory, _AT_CANCELLED)[0]
        return count

    def cancel(self) -> None:
        """Order the process to read the cancellation that was sent."""
        _CANCELLED.pack_into(self._memory, _AT_CANCELLED, self.cancelled + 1)
