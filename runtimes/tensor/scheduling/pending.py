"""A request between its arrival and its response: its execution, its failure, and its place in the counts."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple, Protocol

from adapters.errors import INSTANCE_LOST, MODEL_FAILED, BackendError, CallerError, CapacityError, InferenceError
from adapters.tensors import Tensor
from runtimes.tensor.interfaces import InstanceEnded, InstanceLost, InvalidRow, ModelFailed, Tensors

MODEL_REJECTS = "model_rejects_request"


class Recorder(Protocol):
    def executed(self, requests: int, rows: int, queued: float, computed: float) -> None:
        """Count an executed batch. `queued` is the sum over its requests, in seconds like `computed`."""
        ...

    def cache_hit(self, seconds: float) -> None:
        """Count a response from the cache or of an identical request in flight, and the seconds of the look-up."""
        ...

    def cache_missed(self, seconds: float) -> None: ...


class NoRecorder:
    def executed(self, requests: int, rows: int, queued: float, computed: float) -> None:
        return

    def cache_hit(self, seconds: float) -> None:
        return

    def cache_missed(self, seconds: float) -> None:
        return


def for_caller(error: BaseException) -> InferenceError:
    """A new error for each caller, because a shared error collects the tracebacks of all."""
    if isinstance(error, InstanceEnded):
        return CapacityError(
            "The copy of the model that had this was ended; try again.", code="instance_ended", retry_after=1.0
        )
    if isinstance(error, InstanceLost):
        return CapacityError(
            "The copy of the model that computed this died or took too long, and is being replaced; try again.",
            code=INSTANCE_LOST,
            retry_after=1.0,
        )
    if isinstance(error, ModelFailed):
        return BackendError(str(error) or "The model failed.", code=MODEL_FAILED)
    return BackendError(f"The model failed with {type(error).__name__}.", code=MODEL_FAILED)


def for_row(message: str) -> InferenceError:
    """The error of a request with a row that failed alone."""
    if isinstance(message, InvalidRow):
        return CallerError(str(message), code=MODEL_REJECTS)  # encoders want no subclass
    return BackendError(message, code=MODEL_FAILED)


def unreadable() -> InferenceError:
    return BackendError("The model's response cannot be read.", code=MODEL_FAILED)


@dataclass(slots=True)
class Execution:
    """One batch on one copy, for the reports of its members."""

    started: float
    rows: int
    seconds: float = 0.0
    """The time of its computation, after its end."""


class PreparedRequest(NamedTuple):
    """A request that was checked and converted by the configuration of its model."""

    inputs: Tensors
    rows: int
    key: Hashable
    """Equal for requests of one batch: the shapes of their rows."""
    requested: tuple[str, ...] | None = None
    """Outputs by name, in order; None for all."""
    cuts: Mapping[int, tuple[int, int]] | None = None
    """By axis: the padded length of inputs, and their own length, to which outputs are cut back."""
    shapes: Mapping[str, tuple[int, ...]] | None = None
    """By input: its shape, if the model has inputs or outputs that depend on it."""


class RequestOwner(Protocol):
    """The scheduler of a request."""

    def withdraw(self, pending: Pending) -> None:
        """Withdraw a request that its caller has cancelled."""
        ...


class Pending(asyncio.Future[list[Tensor]]):
    """The future of a request's outputs, and its place in a queue. Cancelling it withdraws the request.

    One object is both, because every request needs one.
    """

    __slots__ = (
        "arrived", "prepared", "due", "execution", "expires", "key", "level", "order", "owner", "rows", "urgency",
        "waiting",
    )  # fmt: skip

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        owner: RequestOwner,
        prepared: PreparedRequest,
        arrived: float,
        due: float = inf,
    ) -> None:
        super().__init__(loop=loop)
        self.owner = owner
        self.prepared = prepared
        self.key = prepared.key
        self.rows = prepared.rows
        self.level = 0
        self.arrived = arrived
        self.due = due
        self.expires = due
        self.urgency = due
        self.order = 0
        self.waiting = False
        self.execution: Execution | None = None
        """The batch that it is or was part of."""

    @property
    def device_seconds(self) -> float:
        """The request's share of the time of its batch."""
        execution = self.execution
        return 0.0 if execution is None else execution.seconds * self.rows / execution.rows

    def cancel(self, msg: Any | None = None) -> bool:
        if not super().cancel(msg):
            return False
        self.owner.withdraw(self)
        return True

    def answer(self, outputs: list[Tensor]) -> None:
        if not self.done():
            self.set_result(outputs)

    def fail(self, error: Exception) -> None:
        if not self.done():
            self.set_exception(error)
