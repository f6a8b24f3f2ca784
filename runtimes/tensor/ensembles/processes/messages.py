"""The messages with the result of one execution of an ensemble.

The present step of a process, and the number of cancelled requests, are in memory that both sides see. The server
reads the step when the process has died. Neither side waits for the other.
"""

from __future__ import annotations

import mmap
import os
import struct
from typing import Final

import msgspec

from adapters.errors import BackendError, CallerError, CapacityError, ClientGone, InferenceError, NotFound, TooLarge
from runtimes.tensor.requests.messages import MemberRun, ResponseHead

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


_KINDS: Final = {
    kind.__name__: kind for kind in (BackendError, CallerError, CapacityError, ClientGone, NotFound, TooLarge)
}
WHOLE: Final = -1
"""In place of a step: the failure is that of the ensemble."""


class RequestFailure(msgspec.Struct, array_like=True, frozen=True):
    """A request that failed at a step."""

    number: int
    step: int
    kind: str
    code: str
    message: str
    param: str | None = None

    @classmethod
    def of(cls, number: int, step: int, error: InferenceError) -> RequestFailure:
        kind = type(error).__name__
        return cls(number, step, kind if kind in _KINDS else error.kind, error.code, error.message, error.param)

    def error(self) -> InferenceError:
        """The error, rebuilt from the message."""
        kind = _KINDS.get(self.kind, CallerError if self.kind == CallerError.kind else BackendError)
        return kind(self.message, code=self.code, param=self.param)


class StepsHead(msgspec.Struct, array_like=True, frozen=True):
    """The end of one execution: every request has a response or a failure."""

    responses: tuple[ResponseHead, ...] = ()
    failures: tuple[RequestFailure, ...] = ()
    runs: tuple[MemberRun, ...] = ()
