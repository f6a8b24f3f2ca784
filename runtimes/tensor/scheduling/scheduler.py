"""The interface of the schedulers of all kinds of models."""

from __future__ import annotations

import asyncio
from math import inf
from typing import Protocol

from adapters.tensors import Inference, Tensor
from runtimes.tensor.scheduling.responses import Responses


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
