"""One request for one member, and its outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from adapters.errors import InferenceError
from adapters.tensors import NO_PARAMETERS, Inference, Tensor
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.interfaces import Array, Tensors
from runtimes.tensor.requests.messages import InferenceHead, MemberRun
from runtimes.tensor.scheduling.intake import Intake
from runtimes.tensor.scheduling.pending import PreparedRequest
from runtimes.tensor.scheduling.unfinished import UnfinishedTensor, finished_here


class StepRequests(Protocol):
    """The requests of a step, beside their tensors."""

    heads: Sequence[InferenceHead]
    requested: tuple[str, ...]
    """Outputs that the ensemble maps."""

    def is_cancelled(self, at: int) -> bool: ...


class StepCall:
    """One request for one step. After its execution it has `outputs` or `error`."""

    __slots__ = ("error", "head", "inference", "is_cancelled", "outputs", "parameters", "prepared", "requested")

    def __init__(
        self,
        head: InferenceHead,
        inference: Inference | None = None,
        requested: tuple[str, ...] = (),
        is_cancelled: Callable[[], bool] = bool,
    ) -> None:
        """`head` has the parts of the request beside its tensors; `requested` are outputs that the ensemble maps."""
        self.head = head
        self.inference = inference
        self.requested = requested
        self.is_cancelled = is_cancelled
        self.prepared: PreparedRequest | None = None
        self.outputs: list[Tensor] = []
        self.parameters = NO_PARAMETERS
        """The parameters of the response."""
        self.error: InferenceError | None = None


@dataclass(slots=True)
class JoinedOutcome:
    """The outputs of all requests, joined; or an outcome for each, in `calls`."""

    runs: list[MemberRun]
    outputs: Tensors | None = None
    calls: Sequence[StepCall] = ()


class MemberModel(Protocol):
    """The model of a step, loaded."""

    def execute_joined(
        self, step: int, inputs: dict[str, Array], rows: Sequence[int], requests: StepRequests
    ) -> JoinedOutcome | None:
        """Execute requests whose inputs are joined, so many rows of each. None, without an execution, if they must be
        executed separately."""
        ...

    def execute(self, step: int, calls: Sequence[StepCall]) -> list[MemberRun]:
        """Execute requests and set the outcomes of the calls. Never raises."""
        ...

    def close(self) -> None: ...


def batches_of(calls: Sequence[StepCall], config: ModelConfig) -> Iterator[list[StepCall]]:
    """The calls in batches that the configuration allows: of one shape, or one by one."""
    rules = config.dynamic_batching
    if rules is None or config.max_batch_size <= 1:
        yield from ([call] for call in calls)
        return
    open_batches: dict[object, tuple[list[StepCall], int]] = {}
    for call in calls:
        assert call.prepared is not None
        key, rows = call.prepared.key, call.prepared.rows
        batch, size = open_batches.get(key, ([], 0))
        if batch and size + rows > config.max_batch_size:
            yield batch
            batch, size = [], 0
        batch.append(call)
        open_batches[key] = (batch, size + rows)
    for batch, _ in open_batches.values():
        yield batch


def executes_joined(rows: Sequence[int], most: int, config: ModelConfig) -> bool:
    """Whether requests of so many rows each may be executed as one batch of at most `most` rows."""
    return sum(rows) <= most and (len(rows) == 1 or config.dynamic_batching is not None)


def checked(calls: Sequence[StepCall], intake: Intake) -> list[StepCall]:
    """The calls that fit their model; each of the others gets an error."""
    fit = []
    for call in calls:
        assert call.inference is not None
        try:
            call.prepared = intake.read(call.inference)
            fit.append(call)
        except InferenceError as error:
            call.error = error
    return fit


def owned(tensor: Tensor) -> Tensor:
    """The tensor with its own bytes: a model may use the memory of its outputs again."""
    data = finished_here(tensor) if isinstance(tensor, UnfinishedTensor) else memoryview(bytearray(tensor.data))
    return Tensor(tensor.name, tensor.datatype, tensor.shape, data)
