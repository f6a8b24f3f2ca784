"""A prepared step, and the state of a request between steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from adapters.errors import InferenceError
from adapters.tensors import RequestedOutput, Tensor
from runtimes.tensor.ensembles.outcomes import renamed
from runtimes.tensor.ensembles.processes.calls import MemberModel, StepCall
from runtimes.tensor.ensembles.processes.joined import JoinedInput
from runtimes.tensor.ensembles.sequence_override import SequenceOverrides
from runtimes.tensor.ensembles.stages import PreparedStep, StagePlan
from runtimes.tensor.requests.messages import InferenceHead
from runtimes.tensor.triton_api.channel import RequestChannel


class LocalStep(NamedTuple):
    """One step, prepared."""

    step: PreparedStep
    model: MemberModel
    requested: tuple[str, ...]
    """Outputs of the model that the ensemble maps."""
    outputs: list[RequestedOutput]
    required: tuple[str, ...]
    """Tensors without which the step is skipped."""
    shared: frozenset[str]
    """Tensors that others read too, of which the step gets a copy: a model may write to its inputs."""
    joined: tuple[JoinedInput, ...]
    written: tuple[tuple[str, str], ...]
    """Outputs by the names of the model and of the ensemble."""


class OpenExecution:
    """One request of an execution."""

    __slots__ = ("cancelled", "failure", "head", "overrides", "plan", "steps", "values")

    def __init__(self, head: InferenceHead, plan: StagePlan, steps: frozenset[int], values: dict[str, Tensor]) -> None:
        self.head = head
        self.plan = plan
        self.steps = steps
        self.values = values
        self.failure: tuple[int, InferenceError] | None = None
        self.cancelled = False
        self.overrides = SequenceOverrides()

    def awaits(self, local: LocalStep) -> bool:
        """Whether the request takes a step now: an output needs the step, and its inputs are available."""
        if self.failure is not None or local.step.index not in self.steps:
            return False
        return all(tensor in self.values for tensor in local.required)


class JoinedRequests:
    """The requests of a step, beside their tensors."""

    def __init__(self, requests: Sequence[OpenExecution], requested: tuple[str, ...], channel: RequestChannel) -> None:
        self.heads: Sequence[InferenceHead] = [request.head for request in requests]
        self.requested = requested
        self._requests = requests
        self._channel = channel

    def is_cancelled(self, at: int) -> bool:
        if not self._requests[at].cancelled:
            self._channel.poll()
        return self._requests[at].cancelled


def settle(local: LocalStep, request: OpenExecution, call: StepCall) -> None:
    """The outcome of a step."""
    if call.error is not None:
        request.failure = local.step.index, call.error
        return
    try:
        request.overrides.add(local.step, call.parameters)
    except InferenceError as error:
        request.failure = local.step.index, error
        return
    request.values.update(renamed(local.step, call.outputs))
