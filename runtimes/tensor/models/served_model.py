"""One version of a model in service: its scheduler, instances and leases. Requests of one model for
another are the steps of an ensemble, and calls by a model's own code."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Protocol

from adapters.tensors import Inference, Inferred, Parameters, Tensor
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.drift.monitor import DriftMonitor
from runtimes.tensor.explanations.explanation import Explainer
from runtimes.tensor.interfaces import Instance
from runtimes.tensor.models.residency import MemoryHold
from runtimes.tensor.requests.messages import MemberRun
from runtimes.tensor.scheduling.responses import Responses
from runtimes.tensor.statistics import ModelStatistics


class ModelScheduler(Protocol):
    """Computes the outputs of requests. It belongs to one loop, which creates and uses it; `deadline` is that loop's
    time.

    Both methods raise `CallerError` for a request that does not fit the model, `CapacityError` for one without room or
    time, `DeadlineError` for one past its deadline. Afterwards the future or the iterator may raise `BackendError`
    (the model failed), `CapacityError` (its copy was lost, its time in the queue has ended, the model is unloaded) and
    `DeadlineError`.
    """

    @property
    def waiting(self) -> int:
        """Requests that no copy computes yet."""
        ...

    @property
    def computing(self) -> int: ...

    def infer(self, inference: Inference, deadline: float = inf) -> asyncio.Future[list[Tensor]]:
        """The future of the outputs in the requested order; cancelling it withdraws the request.

        Afterwards it has `arrived` and `execution`, with the latter's `started`, `rows` and `seconds`.
        `CallerError` for a decoupled model.
        """
        ...

    def stream(self, inference: Inference, deadline: float = inf) -> Responses:
        """The responses: any number for a decoupled model, one for every other model."""
        ...

    def holds(self, sequence: int | str) -> bool:
        """Whether this sequence is open in this scheduler, which then needs its requests."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether no request waits, none is computed and no sequence is open."""
        ...

    async def drain(self) -> None:
        """Return when the scheduler is idle. New requests are not refused."""
        ...

    async def aclose(self) -> None:
        """Refuse new requests, and end waiting ones; requests in execution end with the instances. Idempotent."""
        ...


__all__ = ["ModelScheduler", "ServedModel"]


@dataclass(slots=True, eq=False)
class ServedModel:
    """A version in service. `ModelManager.lease` acquires it; `release` must follow."""

    name: str
    version: str
    """The version in the form of the protocol."""
    config: ModelConfig
    """Complete."""
    scheduler: ModelScheduler
    instances: Sequence[Instance]
    folder: Path
    statistics: ModelStatistics
    drift: DriftMonitor | None = None
    card: Mapping[str, str] = field(default_factory=dict)
    """See `card`."""
    load_seconds: float = 0.0
    memory_bytes: int = 0
    explainer: Explainer | None = None
    """Explains its answers, if the configuration has `explain`."""
    hold: MemoryHold | None = None
    """The version's part of the memory budget."""
    leases: int = 0
    last_used: float = 0.0
    """Loop time of the last request's end."""
    clock: Callable[[], float] = field(default_factory=lambda: asyncio.get_running_loop().time, repr=False)
    _unused: asyncio.Event | None = field(default=None, repr=False)
    """Set while the version waits for its last lease."""

    @property
    def number(self) -> int:
        return int(self.version)

    @property
    def is_idle(self) -> bool:
        return not self.leases and self.scheduler.is_idle

    def release(self) -> None:
        """Release the lease of a request that has ended."""
        self.leases -= 1
        self.last_used = self.clock()
        if not self.leases and self._unused is not None:
            self._unused.set()

    async def drain(self) -> None:
        """Return when the last lease is released. Only for a version that is out of service."""
        while not self.is_idle:
            await self.scheduler.drain()
            if self.leases:
                self._unused = asyncio.Event()
                await self._unused.wait()
                self._unused = None

    async def aclose(self) -> None:
        """End the version, and its requests in progress."""
        try:
            await self.scheduler.aclose()
            if self.explainer is not None:
                await self.explainer.aclose()
        finally:
            if self.drift is not None:
                await self.drift.aclose()
            for instance in self.instances:
                await instance.aclose()


@dataclass(slots=True)
class Computed(Inferred):
    """A response. `device_seconds` is its time on the model's device: its share of a batch, or for one of several
    responses the time since the previous response.

    `final`: no other follows. The last response of a decoupled model is marked only if the model itself
    has marked it.
    """

    device_seconds: float = 0.0
    final: bool = True


class Calls(Protocol):
    """Runs requests on models of this server, with their queues, caches and statistics.

    A caller that has leased the version passes it as `served`; otherwise each request leases its own, and waits for a
    version that must be loaded first. All methods raise `InferenceError`.
    """

    def lease(self, model: str, version: str, parameters: Parameters) -> ServedModel | None:
        """Lease a version in service, to be released once. None if it must be loaded first, or is unavailable.

        `parameters` name the sequence that the requests belong to, if any.
        """
        ...

    async def infer(self, inference: Inference, deadline: float = inf, served: ServedModel | None = None) -> Computed:
        """One request, one response. Cancelling withdraws it. `deadline` is loop time."""
        ...

    @property
    def is_observed(self) -> bool:
        """Whether requests are traced or logged one by one."""
        ...

    def executed(self, model: str, version: str, run: MemberRun) -> None:
        """Count an execution of a model in a process of an ensemble."""
        ...

    def stream(
        self, inference: Inference, deadline: float = inf, served: ServedModel | None = None
    ) -> AsyncGenerator[Computed, None]:
        """Run a request with any number of responses. The caller must close the iterator."""
        ...
