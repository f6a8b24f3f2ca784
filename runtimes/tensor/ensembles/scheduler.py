"""The scheduler of an ensemble: it has no copies, and each step waits in the queue of its model.

Each response of a decoupled model passes through the steps behind it. Responses pass at the same time, up to `WINDOW`
of them, and leave in their order.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import aclosing
from math import inf
from typing import Any, Final

from adapters.errors import CallerError, CapacityError, DeadlineError, InferenceError
from adapters.tensors import Inference, Tensor
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.ensembles.execution import TIMEOUT, CheckedRequest, EnsembleRun, Program, Values
from runtimes.tensor.ensembles.outcomes import SequenceOverrides, renamed
from runtimes.tensor.ensembles.processes.placement import ProcessScheduler
from runtimes.tensor.ensembles.stages import PreparedStep, StagePlan
from runtimes.tensor.interfaces import Instance
from runtimes.tensor.models.members import Describe, members_of
from runtimes.tensor.models.served_model import Calls, ModelScheduler
from runtimes.tensor.scheduling.cached import Cached, ResponseStore
from runtimes.tensor.scheduling.clock import Quiet, clock
from runtimes.tensor.scheduling.dispatcher import number_of
from runtimes.tensor.scheduling.intake import Intake
from runtimes.tensor.scheduling.pending import Execution as Computation
from runtimes.tensor.scheduling.pending import NoRecorder, Recorder
from runtimes.tensor.scheduling.queue import MAX_QUEUE_SIZE
from runtimes.tensor.scheduling.responses import Responses

WINDOW: Final = 8
"""Responses of one decoupled step that are between it and the client."""


class Valve:
    """Passes responses to their reader while it reads. It is the `StreamControl` of `Responses`."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()

    def pause(self) -> None:
        self._open.clear()

    def resume(self) -> None:
        self._open.set()

    def stop(self) -> None:
        """Do nothing: the future of the writing task cancels it."""

    async def opened(self) -> None:
        await self._open.wait()


class StreamExecution:
    """One request with any number of responses."""

    def __init__(self, execution: EnsembleRun) -> None:
        self._execution = execution
        self._stages = execution.request.plan.stages
        self._valve = Valve()
        self.responses: Responses | None = None
        """Set before the request runs."""

    async def run(self) -> list[Tensor]:
        """Push all responses; the result is empty."""
        assert self.responses is not None
        self.responses.begun(self._valve)
        with self._execution:
            try:
                await self._stage(0, self._execution.inputs(), SequenceOverrides(), None)
            except BaseExceptionGroup as group:
                raise _first(group) from None
        return []

    async def _stage(
        self, at: int, values: Mapping[str, Tensor], overrides: SequenceOverrides, before: asyncio.Task[None] | None
    ) -> None:
        """Run a stage for one response of the stage before it, and deliver the results.

        `before` delivers the previous response.
        """
        stage = self._stages[at]
        if stage.plan.steps:
            values = await self._execution.advance(stage, values, overrides)
        if stage.source is not None:
            await self._spread(at, self._responses(stage.source, values, overrides), before)
            return
        if before is not None:
            await asyncio.wait((before,))
        await self._deliver(values)

    async def _spread(
        self,
        at: int,
        computed: AsyncGenerator[tuple[Values, SequenceOverrides], None],
        before: asyncio.Task[None] | None,
    ) -> None:
        """Run the next stage for each response of a decoupled step."""
        window = asyncio.Semaphore(WINDOW - 1)
        following = self._stages[at + 1]
        is_last = following.source is None and not following.plan.steps
        if is_last and before is not None:
            await asyncio.wait((before,))
        async with asyncio.TaskGroup() as group, aclosing(computed) as responses:
            try:
                async for outputs, overrides in responses:
                    if is_last:
                        await self._deliver(outputs)
                        continue
                    before = group.create_task(self._stage(at + 1, outputs, overrides, before))
                    before.add_done_callback(lambda _: window.release())
                    await window.acquire()
            except InferenceError:
                if before is not None:  # the responses before the failure are delivered first
                    await asyncio.wait((before,))
                raise

    async def _responses(
        self, source: PreparedStep, values: Mapping[str, Tensor], overrides: SequenceOverrides
    ) -> AsyncGenerator[tuple[Values, SequenceOverrides], None]:
        """The responses of a decoupled step, by the names of the ensemble, each with the sequence that it names."""
        execution = self._execution
        program, due = execution.program, execution.request.due
        try:
            async with program.room(source, due):
                inference = execution.inference(source, values, overrides)
                stream = program.calls.stream(inference, due, execution.leased(source))
                async with aclosing(stream):
                    async for computed in stream:
                        execution.device_seconds += computed.device_seconds
                        yield renamed(source, computed.outputs), overrides.behind(source, computed.parameters)
        except InferenceError as error:
            raise program.failure(source, error) from None

    async def _deliver(self, values: Mapping[str, Tensor]) -> None:
        assert self.responses is not None
        answer = self._execution.answer(values)
        await self._valve.opened()
        self.responses.push(answer)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that ended the others."""
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


_MICROSECOND = 1e-6
MAX_PLANS = 64
"""Combinations of requested outputs whose plans are stored."""


class RunningRequest(asyncio.Task[list[Tensor]]):
    """The future of a request's outputs. Cancelling it cancels the steps that run."""

    def __init__(
        self, work: Coroutine[Any, Any, list[Tensor]], execution: EnsembleRun, computation: Computation
    ) -> None:
        super().__init__(work, loop=asyncio.get_running_loop())
        self.arrived = computation.started
        self.execution = computation
        self._whole = execution

    @property
    def device_seconds(self) -> float:
        """The time of all steps on their devices."""
        return self._whole.device_seconds


class EnsembleScheduler:
    """See `ModelScheduler`."""

    def __init__(self, config: ModelConfig, describe: Describe, calls: Calls, recorder: Recorder | None = None) -> None:
        self._config = config
        self._program = Program(config, members_of(config, describe), calls)
        self._intake = Intake(config)
        self._plans = {frozenset(self._program.outputs): self._program.stages.plan(self._program.outputs)}
        self._recorder = recorder or NoRecorder()
        self._clock = clock(asyncio.get_running_loop())
        self._running: set[RunningRequest] = set()
        self._quiet = Quiet(lambda: self.is_idle)
        self._closed = False

    @property
    def waiting(self) -> int:
        """0: requests wait in the queues of the steps."""
        return 0

    @property
    def computing(self) -> int:
        return len(self._running)

    @property
    def is_idle(self) -> bool:
        return not self._running

    def holds(self, sequence: int | str) -> bool:
        """False: the models of the steps have the sequences."""
        return False

    def infer(self, inference: Inference, deadline: float = inf) -> asyncio.Future[list[Tensor]]:
        if self._config.decoupled:
            raise CallerError(
                f"Model `{self._config.name}` sends any number of responses: use a stream.", code="model_decoupled"
            )
        execution, rows = self._begin(inference, deadline)
        return self._run(execution.infer(), execution, rows)

    def stream(self, inference: Inference, deadline: float = inf) -> Responses:
        if not self._config.decoupled:
            return Responses(self.infer(inference, deadline))
        execution, rows = self._begin(inference, deadline)
        streaming = StreamExecution(execution)
        streaming.responses = Responses(self._run(streaming.run(), execution, rows))
        return streaming.responses

    def _begin(self, inference: Inference, deadline: float) -> tuple[EnsembleRun, int]:
        """Check a request. Returns the checked request and its rows."""
        if self._closed:
            raise CapacityError("The model is being unloaded.", code="model_unloading")
        if len(self._running) >= MAX_QUEUE_SIZE:
            raise CapacityError(f"The ensemble `{self._config.name}` has {MAX_QUEUE_SIZE} requests already.")
        prepared = self._intake.read(inference)
        requested = prepared.requested or self._program.outputs
        now = self._clock()
        timeout = number_of(inference, TIMEOUT) * _MICROSECOND if inference.parameters else 0.0
        due = min(deadline, now + timeout) if timeout else deadline
        if due <= now:
            raise DeadlineError("The request arrived after its deadline.")
        return EnsembleRun(
            self._program, CheckedRequest(inference, self._plan(requested), requested, due, timeout > 0)
        ), prepared.rows

    def _plan(self, requested: tuple[str, ...]) -> StagePlan:
        outputs = frozenset(requested)
        plan = self._plans.get(outputs)
        if plan is None:
            plan = self._program.stages.plan(requested)
            if len(self._plans) < MAX_PLANS:
                self._plans[outputs] = plan
        return plan

    def _run(self, work: Coroutine[Any, Any, list[Tensor]], execution: EnsembleRun, rows: int) -> RunningRequest:
        task = RunningRequest(self._ended_well(work, execution, rows), execution, Computation(self._clock(), rows))
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def _ended_well(
        self, work: Coroutine[Any, Any, list[Tensor]], execution: EnsembleRun, rows: int
    ) -> list[Tensor]:
        """Count a successful request. A request that the unloading of the ensemble ends has failed."""
        try:
            outputs = await work
        except asyncio.CancelledError:
            if self._closed:
                raise CapacityError(
                    "The model was unloaded before the request ended.", code="model_unloading"
                ) from None
            raise
        self._recorder.executed(1, rows, 0.0, execution.device_seconds)
        return outputs

    def _ended(self, task: asyncio.Future[list[Tensor]]) -> None:
        assert isinstance(task, RunningRequest)
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # it may have no reader: the client of a stream may have disconnected
        self._quiet.settle()

    async def drain(self) -> None:
        await self._quiet.wait()

    async def aclose(self) -> None:
        self._closed = True
        for task in tuple(self._running):
            task.cancel()
        await self._quiet.wait()


class EnsembleSchedulers:
    """Makes the schedulers of ensembles. `calls` is set before the first model is loaded."""

    def __init__(self, describe: Describe, store: ResponseStore) -> None:
        self.calls: Calls | None = None
        self._describe = describe
        self._store = store

    def __call__(self, config: ModelConfig, recorder: Recorder, instances: Sequence[Instance] = ()) -> ModelScheduler:
        assert self.calls is not None
        scheduler: ModelScheduler = EnsembleScheduler(config, self._describe, self.calls, recorder)
        if instances:
            scheduler = ProcessScheduler(config, instances, scheduler, self._describe, self.calls, recorder)
        if not config.response_cache.enable:
            return scheduler
        return Cached(scheduler, self._store, config.response_cache.ttl, recorder)
