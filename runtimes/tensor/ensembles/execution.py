"""One request of an ensemble, from step to step."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from math import inf
from typing import Any, NamedTuple

from adapters.dataflow import run
from adapters.errors import DeadlineError, InferenceError
from adapters.tensors import Inference, Parameters, RequestedOutput, Tensor
from config.graph import GraphStep
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.ensembles.outcomes import SequenceOverrides, answer_of, renamed, step_failure
from runtimes.tensor.ensembles.stages import EnsembleStage, PreparedStep, StagePlan, Stages, passed
from runtimes.tensor.models.members import Member
from runtimes.tensor.models.served_model import Calls, ServedModel
from runtimes.tensor.scheduling.clock import clock

TIMEOUT = "timeout"
"""The parameter with the time of the whole request, in microseconds."""
_MICROSECONDS = 1_000_000
Values = dict[str, Tensor]


class Program:
    """An ensemble, prepared for its requests."""

    def __init__(self, config: ModelConfig, members: list[Member], calls: Calls) -> None:
        assert config.ensemble is not None
        self.name = config.name
        self.calls = calls
        self.stages = Stages(config, members)
        self.outputs = tuple(spec.name for spec in config.outputs)
        self.of_inputs = self.stages.of_inputs()
        self.of_outputs = self.stages.of_outputs()
        limit = config.ensemble.max_inflight_requests
        self._rooms = {member.index: asyncio.Semaphore(limit) for member in members} if limit else {}
        self._inputs = {spec.name for spec in config.inputs}

    @asynccontextmanager
    async def room(self, step: PreparedStep, due: float) -> AsyncIterator[None]:
        """Acquire one of the requests that a step may compute at a time. Raises `DeadlineError`."""
        room = self._rooms.get(step.index)
        if room is None:
            yield
            return
        try:
            async with asyncio.timeout_at(None if due == inf else due):
                await room.acquire()
        except TimeoutError:
            raise DeadlineError("The request's deadline passed before its turn.") from None
        try:
            yield
        finally:
            room.release()

    @property
    def is_limited(self) -> bool:
        return bool(self._rooms)

    def failure(self, step: PreparedStep, error: InferenceError) -> InferenceError:
        """The error of a step as that of the ensemble."""
        return step_failure(self.name, step, error, self._inputs)


class CheckedRequest(NamedTuple):
    """A request that was checked."""

    inference: Inference
    plan: StagePlan
    requested: tuple[str, ...]
    due: float
    """Loop time."""
    has_timeout: bool


class EnsembleRun:
    """One request. Its models are leased until it ends, so that all steps see one version."""

    def __init__(self, program: Program, request: CheckedRequest) -> None:
        self.program = program
        self.request = request
        self.device_seconds = 0.0
        self._leases: dict[int, ServedModel] = {}
        self._clock = clock(asyncio.get_running_loop())

    async def infer(self) -> list[Tensor]:
        """Return the outputs of an ensemble without decoupled models."""
        with self:
            (stage,) = self.request.plan.stages
            return self.answer(await self.advance(stage, self.inputs(), SequenceOverrides()))

    def __enter__(self) -> EnsembleRun:
        calls, parameters = self.program.calls, self.request.inference.parameters
        for step in self.request.plan.steps:
            served = calls.lease(step.model, step.version, parameters)
            if served is not None:  # others are loaded when their step begins
                self._leases[step.index] = served
        return self

    def __exit__(self, *_: object) -> None:
        for served in self._leases.values():
            served.release()
        self._leases.clear()

    def inputs(self) -> Values:
        """The request's tensors in the form of the steps."""
        reshapes = self.program.of_inputs
        tensors = self.request.inference.inputs
        if not reshapes:
            return {tensor.name: tensor for tensor in tensors}
        return {tensor.name: passed(tensor, tensor.name, reshapes.get(tensor.name)) for tensor in tensors}

    async def advance(self, stage: EnsembleStage, values: Mapping[str, Tensor], overrides: SequenceOverrides) -> Values:
        """Run the steps of a stage, which add to `overrides`. Returns all values after it."""
        return (await run(stage.plan, values, functools.partial(self._step, overrides))).values

    def answer(self, values: Mapping[str, Tensor]) -> list[Tensor]:
        """The response. Raises `BackendError` if a step was skipped for lack of an input."""
        program, request = self.program, self.request
        return answer_of(program.name, values, request.requested, program.of_outputs, request.plan.steps)

    # ── one step ──────────────────────────────────────────────────────────────────────────────────────

    async def _step(self, overrides: SequenceOverrides, graph_step: GraphStep, values: Values) -> Values:
        program, due = self.program, self.request.due
        step = program.stages.prepared[graph_step.name]
        served = self._leases.get(step.index)
        try:
            if program.is_limited:
                async with program.room(step, due):
                    computed = await program.calls.infer(self.inference(step, values, overrides), due, served)
            else:
                computed = await program.calls.infer(self.inference(step, values, overrides), due, served)
            overrides.add(step, computed.parameters)
        except InferenceError as error:
            raise program.failure(step, error) from None
        self.device_seconds += computed.device_seconds
        return renamed(step, computed.outputs)

    def inference(self, step: PreparedStep, values: Mapping[str, Tensor], overrides: SequenceOverrides) -> Inference:
        """The request for one step."""
        whole = self.request.inference
        tensors = [passed(values[tensor], name, reshape) for name, tensor, reshape in step.inputs if tensor in values]
        outputs: list[RequestedOutput] = list(step.requested)
        return Inference(step.model, step.version, whole.id, self._parameters(overrides.of(step)), tensors, outputs)

    def leased(self, step: PreparedStep) -> ServedModel | None:
        return self._leases.get(step.index)

    def _parameters(self, override: Parameters) -> Parameters:
        """The request's parameters. `timeout` is the remaining time; an earlier step may have set the sequence."""
        parameters = self.request.inference.parameters
        if not (self.request.has_timeout or override):
            return parameters
        changed: dict[str, Any] = {**parameters, **override}
        if not self.request.has_timeout:
            return changed
        changed[TIMEOUT] = max(1, round((self.request.due - self._clock()) * _MICROSECONDS))
        return changed
