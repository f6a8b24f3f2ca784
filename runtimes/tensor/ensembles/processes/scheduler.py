"""The scheduler of an ensemble with its own processes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import cast

from adapters.errors import DeadlineError
from adapters.tensors import Inference, Tensor
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.ensembles.execution import TIMEOUT
from runtimes.tensor.ensembles.processes.placement import EnsembleCopy, batching_of
from runtimes.tensor.interfaces import Instance
from runtimes.tensor.models.members import Describe, members_of, version_of
from runtimes.tensor.models.served_model import Calls, ModelScheduler
from runtimes.tensor.requests.messages import MemberRun
from runtimes.tensor.requests.scheduler import RequestScheduler
from runtimes.tensor.scheduling.dispatcher import number_of
from runtimes.tensor.scheduling.pending import Recorder

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
