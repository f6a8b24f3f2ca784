"""The messages with the result of one execution of an ensemble."""

from __future__ import annotations

from typing import Final

import msgspec

from adapters.errors import (
    BackendError,
    CallerError,
    CapacityError,
    ClientGone,
    InferenceError,
    NotFound,
    TooLarge,
)
from runtimes.tensor.requests.messages import ResponseHead

_KINDS: Final = {
    kind.__name__: kind for kind in (BackendError, CallerError, CapacityError, ClientGone, NotFound, TooLarge)
}
WHOLE: Final = -1
"""In place of a step: the failure is that of the ensemble."""


class MemberRun(msgspec.Struct, array_like=True, frozen=True):
    """One execution of a step's model. `counted`: the statistics count it as an execution."""

    step: int
    requests: int
    rows: int
    seconds: float
    failed: int = 0
    """Requests that failed."""
    counted: bool = True


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
