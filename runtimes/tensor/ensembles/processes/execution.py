"""Executes requests of an ensemble in its process: all requests of an execution take a step together."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from adapters.errors import BackendError, ClientGone, InferenceError
from adapters.tensors import Data, Inference, RequestedOutput, Tensor
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.ensembles.outcomes import SequenceOverrides, answer_of, overridden, renamed
from runtimes.tensor.ensembles.processes.calls import (
    JoinedInput,
    JoinedValues,
    MemberModel,
    StepCall,
    can_join,
    joined,
    joined_inputs,
    owned,
)
from runtimes.tensor.ensembles.processes.messages import WHOLE, Progress, RequestFailure, StepsHead
from runtimes.tensor.ensembles.stages import PreparedStep, StagePlan, Stages, passed
from runtimes.tensor.models.members import Member, optional_inputs, order_of
from runtimes.tensor.requests import messages
from runtimes.tensor.requests.messages import InferenceHead, MemberRun, ModelMessage, ResponseHead, TensorHead
from runtimes.tensor.triton_api.channel import RequestChannel
from runtimes.tensor.triton_api.errors import TritonModelException


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


_LOG = logging.getLogger(__name__)
_decode_requests = msgspec.msgpack.Decoder(list[InferenceHead]).decode


class EnsembleSteps:
    """The steps of one ensemble, with the models of its members. `models` are by step."""

    def __init__(self, config: ModelConfig, members: list[Member], models: Sequence[MemberModel]) -> None:
        assert config.ensemble is not None
        self._name = config.name
        self._stages = Stages(config, members)
        self._models = models
        self._of_inputs, self._of_outputs = self._stages.of_inputs(), self._stages.of_outputs()
        readers: dict[str, int] = dict.fromkeys((spec.name for spec in config.outputs), 1)
        for member in members:
            for tensor in member.step.inputs.values():
                readers[tensor] = readers.get(tensor, 0) + 1
        optional = optional_inputs(members)
        self._can_join = can_join(config, members)
        self._datatypes = {spec.name: spec.datatype for spec in (*config.inputs, *config.outputs)}
        self._of_outputs_only = {spec.name: spec.datatype for spec in config.outputs}
        for member in members:
            for spec in member.config.outputs:
                if spec.name in member.step.outputs:
                    self._datatypes[member.step.outputs[spec.name]] = spec.datatype
        self._cancelled = 0
        """The number of cancellations that were read."""
        self._order = [
            self._prepared(members[index], models[index], optional, readers) for index in order_of(config.ensemble)
        ]
        self._plans: dict[tuple[str, ...], tuple[StagePlan, frozenset[int]]] = {}

    def _prepared(
        self, member: Member, model: MemberModel, optional: frozenset[tuple[int, str]], readers: dict[str, int]
    ) -> LocalStep:
        step = self._stages.prepared[str(member.index)]
        required = tuple([tensor for name, tensor, _ in step.inputs if (member.index, name) not in optional])
        shared = frozenset(tensor for _, tensor, _ in step.inputs if readers[tensor] > 1)
        names = tuple([output.name for output in step.requested]) or tuple([n.name for n in member.config.outputs])
        inputs = joined_inputs(member, shared) if self._can_join else ()
        return LocalStep(step, model, names, list(step.requested), required, shared, inputs, step.outputs)

    def _plan(self, requested: tuple[str, ...]) -> tuple[StagePlan, frozenset[int]]:
        plan = self._plans.get(requested)
        if plan is None:
            made = self._stages.plan(requested)
            plan = made, frozenset(step.index for step in made.steps)
            if len(self._plans) < messages.INLINE // 1024:
                self._plans[requested] = plan
        return plan

    # ── the loop ──────────────────────────────────────────────────────────────────────────────────────

    def serve(self, channel: RequestChannel, progress: Progress) -> None:
        """Execute until the server closes the connection."""
        executions: dict[int, OpenExecution] = {}

        def cancel(message: ModelMessage) -> None:
            if (execution := executions.get(message.number)) is not None:
                execution.cancelled = True

        channel.handlers[messages.CANCEL] = cancel
        channel.handlers[messages.CREDIT] = lambda _: None
        while (message := channel.wait(lambda: channel.batches.popleft() if channel.batches else None)) is not None:
            requests, values = self._requests(message)
            executions.update((request.head.number, request) for request in requests)
            runs = self._run(requests, values, channel, progress)
            executions.clear()
            _reply(channel, message.number, *self._outcome(requests, runs))

    def _requests(self, message: ModelMessage) -> tuple[list[OpenExecution], JoinedValues | None]:
        """The requests of a message; without values if these are joined."""
        heads, parts, offset = _decode_requests(message.header), [], 0
        for head in heads:
            own, offset = message.tensors(head.inputs, offset)
            parts.append(own)
        requests = [OpenExecution(head, *self._plan(head.requested), {}) for head in heads]
        values = joined(heads, parts) if self._can_join else None
        if values is None:
            for request, own in zip(requests, parts, strict=True):
                for tensor, part in zip(request.head.inputs, own, strict=True):
                    received = Tensor(tensor.name, tensor.datatype, tensor.shape, part)
                    request.values[tensor.name] = passed(received, tensor.name, self._of_inputs.get(tensor.name))
        return requests, values

    def _run(
        self,
        requests: list[OpenExecution],
        values: JoinedValues | None,
        channel: RequestChannel,
        progress: Progress,
    ) -> list[MemberRun]:
        """Run all steps. Each request then has its values or a failure."""
        runs: list[MemberRun] = []
        try:
            for local in self._order:
                if progress.cancelled != self._cancelled:
                    self._cancelled = progress.cancelled
                    channel.poll()
                    if _leave(requests) and values is not None:
                        self._apart(requests, values, self._datatypes)
                        values = None
                progress.step = local.step.index
                if values is not None:
                    values = self._take_joined(local, requests, values, channel, runs)
                if values is None and (takers := [request for request in requests if request.awaits(local)]):
                    runs += self._take(local, takers, channel)
            if values is not None:
                self._apart(requests, values, self._of_outputs_only)
        except Exception:
            _LOG.exception("a request of ensemble %s could not be executed", self._name)
            for request in requests:
                request.failure = request.failure or (WHOLE, BackendError("The ensemble failed.", code="model_failed"))
        progress.step = -1
        return runs

    def _apart(self, requests: list[OpenExecution], values: JoinedValues, datatypes: dict[str, str]) -> None:
        """Cut joined values for the requests, which continue separately."""
        for request, own in zip(requests, values.cut(datatypes), strict=True):
            request.values = own

    def _take_joined(
        self,
        local: LocalStep,
        requests: list[OpenExecution],
        values: JoinedValues,
        channel: RequestChannel,
        runs: list[MemberRun],
    ) -> JoinedValues | None:
        """One step, for all requests. None if their values are no longer joined: the step then awaits them if it was
        not taken."""
        if local.step.index not in requests[0].steps:
            return values
        inputs = values.inputs(local.joined)
        outcome = None
        if inputs is not None:
            context = JoinedRequests(requests, local.requested, channel)
            outcome = local.model.execute_joined(local.step.index, inputs, values.rows, context)
        if outcome is None:
            self._apart(requests, values, self._datatypes)
            return None
        runs += outcome.runs
        if outcome.outputs is not None:
            for name, tensor in local.written:
                values.arrays[tensor] = outcome.outputs[name]
            return values
        self._apart(requests, values, self._datatypes)
        for request, call in zip(requests, outcome.calls, strict=True):
            request.steps = request.steps - {local.step.index}
            settle(local, request, call)
        return None

    def _take(self, local: LocalStep, takers: list[OpenExecution], channel: RequestChannel) -> list[MemberRun]:
        """One step, for the requests that take it."""
        calls = [self._call(local, request, channel) for request in takers]
        runs = local.model.execute(local.step.index, calls)
        for request, call in zip(takers, calls, strict=True):
            settle(local, request, call)
        return runs

    def _call(self, local: LocalStep, request: OpenExecution, channel: RequestChannel) -> StepCall:
        step, values = local.step, request.values
        tensors = []
        for name, tensor, reshape in step.inputs:
            if (value := values.get(tensor)) is not None:
                tensors.append(passed(owned(value) if tensor in local.shared else value, name, reshape))
        inference = Inference(step.model, step.version, request.head.id, inputs=tensors, outputs=local.outputs)
        context = JoinedRequests([request], local.requested, channel)
        head = overridden(request.head, request.overrides.of(step))
        return StepCall(head, inference, local.requested, functools.partial(context.is_cancelled, 0))

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────

    def _outcome(self, requests: list[OpenExecution], runs: list[MemberRun]) -> tuple[StepsHead, list[Data]]:
        heads: list[ResponseHead] = []
        failures: list[RequestFailure] = []
        parts: list[Data] = []
        for request in requests:
            number = request.head.number
            try:
                if request.failure is not None:
                    failures.append(RequestFailure.of(number, *request.failure))
                    continue
                outputs = answer_of(
                    self._name, request.values, request.head.requested, self._of_outputs, request.plan.steps
                )
            except InferenceError as error:
                failures.append(RequestFailure.of(number, WHOLE, error))
                continue
            described = tuple([TensorHead(t.name, t.datatype, t.shape, len(t.data)) for t in outputs])
            heads.append(ResponseHead(number, True, described))
            parts += [tensor.data for tensor in outputs]
        return StepsHead(tuple(heads), tuple(failures), tuple(runs)), parts

    def close(self) -> None:
        for model in dict.fromkeys(self._models):
            model.close()


def _leave(requests: list[OpenExecution]) -> bool:
    """Requests whose clients have disconnected take no further step. Whether there are any."""
    left = [request for request in requests if request.cancelled and request.failure is None]
    for request in left:
        request.failure = WHOLE, ClientGone("The client has disconnected.")
    return bool(left)


def _reply(channel: RequestChannel, number: int, head: StepsHead, parts: list[Data]) -> None:
    try:
        channel.send(messages.EXECUTED, number, head, parts)
    except TritonModelException as error:  # no memory for the outputs
        failed = BackendError(f"The outputs cannot be sent: {error}", code="model_failed")
        failures = [RequestFailure.of(response.number, WHOLE, failed) for response in head.responses]
        channel.send(messages.EXECUTED, number, StepsHead((), (*head.failures, *failures), head.runs))
