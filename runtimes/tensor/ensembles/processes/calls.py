"""One request for one member, and its outcome; values of all requests of an execution, joined."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

import numpy as np

from adapters.errors import InferenceError
from adapters.tensors import NO_PARAMETERS, Data, Inference, Tensor
from runtimes.tensor.configuration.model_config import Dims, ModelConfig, TensorSpec
from runtimes.tensor.datatypes import DTYPES
from runtimes.tensor.interfaces import Array, Tensors
from runtimes.tensor.models.members import Member
from runtimes.tensor.requests.messages import InferenceHead, MemberRun
from runtimes.tensor.scheduling.intake import Intake
from runtimes.tensor.scheduling.outlet import UnfinishedTensor, finished_here
from runtimes.tensor.scheduling.pending import PreparedRequest

_NOT_PLAIN: Final = frozenset({"BYTES", "BF16", "BOOL"})
"""Datatypes whose bytes are not those of an array."""
_BYTE: Final = np.dtype(np.uint8)


class JoinedInput(NamedTuple):
    """An input of a step: the names of the model and of the ensemble, and the arrays that fit."""

    name: str
    tensor: str
    dtype: np.dtype[np.generic]
    dims: Dims
    is_shared: bool
    """Whether another step reads the tensor too, so that the step gets a copy: a model may write to its inputs."""


@dataclass(slots=True)
class JoinedValues:
    """The arrays by the names of the ensemble, and the rows of each request."""

    arrays: dict[str, Array]
    rows: list[int]

    def inputs(self, specs: Sequence[JoinedInput]) -> dict[str, Array] | None:
        """The inputs of a step; None if an array does not fit."""
        inputs = {}
        for name, tensor, dtype, dims, is_shared in specs:
            array = self.arrays.get(tensor)
            if array is None or array.dtype != dtype or not _fits(array.shape[1:], dims):
                return None
            inputs[name] = array.copy() if is_shared else array
        return inputs

    def cut(self, datatypes: dict[str, str]) -> list[dict[str, Tensor]]:
        """The tensors of each request, of those that have a datatype here."""
        values: list[dict[str, Tensor]] = [{} for _ in self.rows]
        for tensor, array in self.arrays.items():
            if (datatype := datatypes.get(tensor)) is None:
                continue
            tail, size = array.shape[1:], array.nbytes // array.shape[0]
            data, at = array.reshape(-1).view(_BYTE).data, 0
            for own, rows in zip(values, self.rows, strict=True):
                end = at + rows * size
                own[tensor] = Tensor(tensor, datatype, (rows, *tail), data[at:end])
                at = end
        return values


def can_join(config: ModelConfig, members: Sequence[Member]) -> bool:
    """Whether the requests of an ensemble can stay joined between its steps."""
    if not config.max_batch_size or any(spec.reshape is not None for spec in (*config.inputs, *config.outputs)):
        return False
    return all(_is_plain(member.config) for member in members)


def _is_plain(config: ModelConfig) -> bool:
    rules = config.dynamic_batching
    if not config.max_batch_size or config.batch_inputs or config.batch_outputs:
        return False
    if rules is not None and (rules.allowed_batch_sizes or rules.pad_to):
        return False
    return all(map(_is_plain_tensor, (*config.inputs, *config.outputs)))


def _is_plain_tensor(spec: TensorSpec) -> bool:
    return spec.datatype not in _NOT_PLAIN and not spec.optional and not spec.allow_ragged_batch


def joined_inputs(member: Member, shared: frozenset[str]) -> tuple[JoinedInput, ...]:
    """The inputs of a step."""
    specs = {spec.name: spec for spec in member.config.inputs}
    return tuple(
        JoinedInput(name, tensor, DTYPES[specs[name].datatype], specs[name].dims, tensor in shared)
        for name, tensor in member.step.inputs.items()
    )


def joined(heads: Sequence[InferenceHead], parts: Sequence[Sequence[Data]]) -> JoinedValues | None:
    """The inputs of requests; None if their shapes differ."""
    first = heads[0]
    for head in heads:
        if head.requested != first.requested or len(head.inputs) != len(first.inputs):
            return None
    rows = [head.inputs[0].shape[0] for head in heads]
    arrays: dict[str, Array] = {}
    for at, tensor in enumerate(first.inputs):
        dtype, tail = DTYPES[tensor.datatype], tensor.shape[1:]
        for head, count in zip(heads, rows, strict=True):
            other = head.inputs[at]
            if other.name != tensor.name or other.shape != (count, *tail):
                return None
        data = bytearray().join([part[at] for part in parts])
        arrays[tensor.name] = np.ndarray((sum(rows), *tail), dtype, data)
    return JoinedValues(arrays, rows)


def parts_of(array: Array, rows: Sequence[int]) -> list[Array]:
    """The rows of each request, as views."""
    ends = [0]
    for count in rows:
        ends.append(ends[-1] + count)
    return [array[start:end] for start, end in pairwise(ends)]


def _fits(shape: tuple[int, ...], dims: Dims) -> bool:
    return shape == dims or (
        len(shape) == len(dims) and all(dim in (-1, size) for size, dim in zip(shape, dims, strict=True))
    )


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
