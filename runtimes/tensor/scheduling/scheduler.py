"""The interface of the schedulers of all kinds of models."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import inf
from typing import Protocol

from adapters.tensors import Inference, Tensor
from runtimes.tensor.backends.base import Instance, ModelLoadError, RequestInstance
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.requests.scheduler import RequestScheduler
from runtimes.tensor.scheduling.batcher import Batcher
from runtimes.tensor.scheduling.cached import Cached
from runtimes.tensor.scheduling.decoupled import Streamer
from runtimes.tensor.scheduling.recorder import NoRecorder, Recorder
from runtimes.tensor.scheduling.response_store import ResponseStore
from runtimes.tensor.scheduling.responses import Responses
from runtimes.tensor.sequences.sequencer import Sequencer


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


def make_scheduler(
    config: ModelConfig,
    instances: Sequence[Instance],
    recorder: Recorder | None = None,
    store: ResponseStore | None = None,
    ensembles: Callable[[ModelConfig, Recorder, Sequence[Instance]], ModelScheduler] | None = None,
) -> ModelScheduler:
    """The scheduler that the configuration selects. It does not own the instances; `store` has the responses of models
    with a cache, and `ensembles` makes the schedulers of ensembles.

    Raises `ModelLoadError` if the configuration cannot be scheduled.
    """
    if config.ensemble is not None:
        assert ensembles is not None
        return ensembles(config, recorder or NoRecorder(), instances)
    whole = bool(instances) and isinstance(instances[0], RequestInstance)
    if config.sequence_batching is not None:
        if config.sequence_batching.iterative_sequence and not whole:
            raise ModelLoadError("`iterative_sequence` is for models with the class `TritonPythonModel`")
        if (config.decoupled and not whole) or config.dynamic_batching is not None:
            other = "decoupled" if config.decoupled else "dynamic_batching"
            raise ModelLoadError(f"a model has either `sequence_batching` or `{other}`, and not both")
        return Sequencer(config, instances, recorder)
    if config.decoupled and not whole:
        return Streamer(config, instances, recorder)
    scheduler: RequestScheduler | Batcher
    scheduler = (RequestScheduler if whole else Batcher)(config, instances, recorder)
    if store is None or not config.response_cache.enable:
        return scheduler
    return Cached(scheduler, store, config.response_cache.ttl, recorder or NoRecorder())
