"""The scheduler of a model, as its configuration selects it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.interfaces import Instance, ModelLoadError, RequestInstance
from runtimes.tensor.models.served_model import ModelScheduler
from runtimes.tensor.requests.scheduler import RequestScheduler
from runtimes.tensor.scheduling.batcher import Batcher
from runtimes.tensor.scheduling.cached import Cached, ResponseStore
from runtimes.tensor.scheduling.dispatcher import Streamer
from runtimes.tensor.scheduling.pending import NoRecorder, Recorder
from runtimes.tensor.sequences.sequencer import Sequencer


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
