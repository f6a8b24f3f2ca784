"""The processes of an ensemble: the members that they load, and each process as the scheduler sees it."""

from __future__ import annotations

import asyncio
import functools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, cast

import msgspec

from adapters.errors import DeadlineError, InferenceError
from adapters.tensors import Inference, Tensor
from runtimes.tensor.configuration import triton
from runtimes.tensor.configuration.model_config import DynamicBatching, ModelConfig
from runtimes.tensor.ensembles.execution import TIMEOUT
from runtimes.tensor.ensembles.outcomes import step_failure
from runtimes.tensor.ensembles.processes.messages import WHOLE, Progress, RequestFailure, StepsHead
from runtimes.tensor.ensembles.stages import Stages
from runtimes.tensor.instances import placement
from runtimes.tensor.instances.child_process import ChildProcess
from runtimes.tensor.instances.request_copy import RequestCopy
from runtimes.tensor.instances.request_worker import RequestWorker
from runtimes.tensor.instances.services import ModelServices
from runtimes.tensor.instances.worker import Job, MakeWorker, MemberJob
from runtimes.tensor.interfaces import Device, Instance, InstanceLost, ModelLoadError
from runtimes.tensor.models.members import Describe, Member, members_of, order_of, version_of
from runtimes.tensor.models.served_model import Calls, ModelScheduler
from runtimes.tensor.requests.messages import MemberRun, ModelMessage
from runtimes.tensor.requests.scheduler import RequestScheduler
from runtimes.tensor.scheduling.dispatcher import number_of
from runtimes.tensor.scheduling.pending import Recorder, for_caller


class EnsembleWorker(RequestWorker):
    """The loop's side of one process."""

    program = "runtimes.tensor.ensembles.processes.loading"
    progress: Progress | None = None
    """The progress, readable after the end of the process too."""

    def _start_child(self) -> ChildProcess:
        child = super()._start_child()
        self.progress = Progress(child.outputs.fd)
        return child

    def cancel(self, number: int) -> None:
        super().cancel(number)
        if self.progress is not None:
            self.progress.cancel()


_decode_steps = msgspec.msgpack.Decoder(StepsHead).decode


class EnsembleCopy(RequestCopy):
    """A `RequestInstance` whose requests end with `execute`."""

    def __init__(self, job: Job, make: Any, execution_timeout: float, members: Sequence[Member]) -> None:
        super().__init__(job, cast("MakeWorker", make), execution_timeout)
        self.on_runs: Callable[[Sequence[MemberRun]], None] = _ignored
        """Set by the scheduler: gets the executions of the members."""
        self._name = job.config.name
        self._prepared = Stages(job.config, list(members)).prepared
        self._own = frozenset(spec.name for spec in job.config.inputs)

    def executed(self, message: ModelMessage) -> None:
        """Record the end of all requests of the list."""
        head = _decode_steps(message.header)
        offset = 0
        for response in head.responses:
            offset = self._respond(response, message, offset)
        for failure in head.failures:
            self._fail_request(failure)
        self.on_runs(head.runs)
        self.answered({})

    def _fail_request(self, failure: RequestFailure) -> None:
        entry = self._requests.pop(failure.number, None)
        if entry is None:
            return
        request, on_end = entry
        request.failed(self._named(failure.step, failure.error()))
        on_end(request)

    def _named(self, step: int, error: InferenceError) -> InferenceError:
        """The error as that of the ensemble."""
        if step == WHOLE:
            return error
        return step_failure(self._name, self._prepared[str(step)], error, self._own)

    def in_step(self, error: InferenceError) -> InferenceError:
        """The error of requests in progress, with their step."""
        progress = cast("EnsembleWorker", self._worker).progress
        return self._named(WHOLE if progress is None else progress.step, error)

    def _lost_error(self, error: InstanceLost) -> InferenceError:
        """The error of a request whose process has died, with the step that it computed."""
        return self.in_step(for_caller(error))


def _ignored(_: Sequence[MemberRun]) -> None:
    """The default of `on_runs`."""


FolderOf = Callable[[str, str], Path]
"""The folder of a loaded version, by model and version. Raises `NotFound` or `Unavailable`."""
_PROCESS_PARAMETERS = ("interpreter", "memory_limit")


def batching_of(config: ModelConfig, members: Sequence[Member]) -> DynamicBatching | None:
    """The way in which requests wait for a process: by the rules of the first step's model."""
    assert config.ensemble is not None
    return members[order_of(config.ensemble)[0]].config.dynamic_batching


def unfit(members: Sequence[Member]) -> Iterator[str]:
    """The reasons why the steps cannot run in one process."""
    for member in members:
        config = member.config
        if config.ensemble is not None:
            yield f"{member.name} is an ensemble"
        if config.decoupled:
            yield f"{member.name} sends any number of responses"
        if config.sequence_batching is not None:
            yield f"{member.name} has sequences"
        for name in _PROCESS_PARAMETERS:
            if name in config.parameters:
                yield f"{member.name} has the parameter `{name}`, which is for a process of its own"


async def start(
    config: ModelConfig, folder: Path, describe: Describe, folder_of: FolderOf, services: ModelServices
) -> Sequence[Instance]:
    """The processes of an ensemble, with all members loaded. Raises `ModelLoadError`; then none stays."""
    members = members_of(config, describe)
    if problems := list(unfit(members)):
        raise ModelLoadError(f"`processes` does not fit this ensemble: {'; '.join(problems)}")
    jobs = _members(members, describe, folder_of)
    seconds = config.execution_timeout or sum(
        member.config.execution_timeout or placement.EXECUTION_SECONDS for member in members
    )
    threads = max(max(job.device.threads for job in jobs), 1)
    share = max(1, len(os.sched_getaffinity(0)) // config.processes)
    device = Device(None, min(threads, share))
    make = functools.partial(EnsembleWorker, services)
    copies: list[EnsembleCopy] = []
    for number in range(config.processes):
        job = Job(f"{config.name}_{number}", config.backend, config, folder, device, members=tuple(jobs))
        copies.append(EnsembleCopy(job, make, seconds, members))
    await placement.load_all(copies)
    return copies


def _members(members: Sequence[Member], describe: Describe, folder_of: FolderOf) -> list[MemberJob]:
    """Each model once, with its steps."""
    steps: dict[tuple[str, str], list[int]] = {}
    for member in members:
        number, _ = describe(member.step.model, version_of(member.step))
        steps.setdefault((member.step.model, number), []).append(member.index)
    jobs = []
    for (model, number), indexes in steps.items():
        config = members[indexes[0]].config
        folder = folder_of(model, number)
        whole = placement.takes_requests(config, folder)
        description = json.dumps(triton.to_json(config)) if whole else ""
        jobs.append(MemberJob(tuple(indexes), number, config, folder, _device(config, folder), description))
    return jobs


def _device(config: ModelConfig, folder: Path) -> Device:
    """The device of the model's first copy."""
    (job, _), *_ = placement.jobs(config, folder)
    return job.device


_MICROSECOND = 1e-6


class ProcessScheduler(RequestScheduler):
    """Sends requests to the ensemble's processes.

    A request that is traced or logged, and one of more rows than a batch, runs step by step by `steps`.
    """

    def __init__(
        self,
        config: ModelConfig,
        instances: Sequence[Instance],
        steps: ModelScheduler,
        describe: Describe,
        calls: Calls,
        recorder: Recorder,
    ) -> None:
        members = members_of(config, describe)
        self._steps = steps
        self._calls = calls
        self._members = [
            (member.step.model, describe(member.step.model, version_of(member.step))[0]) for member in members
        ]
        self._most = config.max_batch_size
        super().__init__(replace(config, dynamic_batching=batching_of(config, members)), instances, recorder)

    def add_instance(self, instance: Instance) -> None:
        assert isinstance(instance, EnsembleCopy)
        instance.on_runs = self._count
        super().add_instance(instance)

    def infer(self, inference: Inference, deadline: float = inf) -> asyncio.Future[list[Tensor]]:
        """See `Scheduler`."""
        if self._calls.is_observed or (self._most and any(t.shape[:1] > (self._most,) for t in inference.inputs)):
            return self._steps.infer(inference, deadline)
        if inference.parameters and (timeout := number_of(inference, TIMEOUT)):
            deadline = min(deadline, self._clock() + timeout * _MICROSECOND)
        return super().infer(inference, deadline)

    def _end_overdue(self, now: float) -> float:
        """The errors of requests that are computed name their step."""
        for instance, (_, members) in self._running.items():
            for member in members:
                if member.due <= now and not member.done():
                    late = DeadlineError("The request's deadline passed before its answer was ready.")
                    member.fail(cast("EnsembleCopy", instance).in_step(late))
        return super()._end_overdue(now)

    def _count(self, runs: Sequence[MemberRun]) -> None:
        """Add the executions of the members to the statistics of their models."""
        for run in runs:
            self._calls.executed(*self._members[run.step], run)

    @property
    def computing(self) -> int:
        return super().computing + self._steps.computing

    @property
    def is_idle(self) -> bool:
        return super().is_idle and self._steps.is_idle

    async def drain(self) -> None:
        await self._steps.drain()
        await super().drain()

    async def aclose(self) -> None:
        await super().aclose()
        await self._steps.aclose()
