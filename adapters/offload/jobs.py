"""Calls for a worker process, what they may cost, and their outcomes."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from adapters.errors import InferenceError, TooLarge

_MiB: Final = 1024 * 1024


class Cost(NamedTuple):
    """The processor time that a job of a kind may take, and the error of one that takes more."""

    noun: str
    seconds: float
    seconds_per_mib: float
    """Added for each MiB of the job's size."""
    advice: str

    def limit(self, size: int) -> float:
        """Seconds of processor time for a job of this size."""
        return self.seconds + self.seconds_per_mib * size / _MiB

    def exceeded(self, amount: str) -> TooLarge:
        """The error of a job that takes more than an amount, such as "20 s of processor time"."""
        return TooLarge(f"The {self.noun} takes more than {amount} to decode. {self.advice}")


BODY: Final = Cost("body", 10.0, 1.0, "Send fewer values, or tensors in binary form.")
"""The slowest JSON takes 0.16 s a MiB on a processor of 2023. A processor that is six times as slow suffices."""
PICTURE: Final = Cost("picture", 20.0, 0.0, "Send fewer pixels, or a baseline JPEG.")
SOUND: Final = Cost("sound", 20.0, 0.0, "Send fewer samples.")
"""The dearest pictures and sounds that are accepted take 3 to 6 s on the same processor."""


class CodecCall(NamedTuple):
    """A call of a codec's function."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(eq=False, slots=True)
class CodecJob:
    """A call that waits or runs, for a tenant; "" is the server itself. Its future never has the state RUNNING."""

    call: CodecCall
    tenant: str = ""
    cost: Cost = BODY
    size: int = 0
    future: Future[Any] = field(default_factory=Future)

    def end(self, result: Any = None, error: BaseException | None = None) -> None:
        """Report the result or the error, unless the request has ended before."""
        if not self.future.set_running_or_notify_cancel():
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


class Failed(NamedTuple):
    """An `InferenceError` that the function raised."""

    kind: type[InferenceError]
    fields: dict[str, Any]
    """The error's attributes."""


class MemoryExceeded(NamedTuple):
    """The job needs more memory than the worker may take."""


class TimeExceeded(NamedTuple):
    """The job needs more processor time than it may take. The system has ended the worker."""


class Crashed(NamedTuple):
    """Any other exception: a defect."""

    text: str


class Done(NamedTuple):
    """The function returned."""

    value: Any


Outcome = Done | Failed | MemoryExceeded | TimeExceeded | Crashed
