"""An encoder from a folder, and the engine over it."""

from pathlib import Path

import torch

from runtimes.llm.engine.block_manager import BlockManager
from runtimes.llm.engine.core import Engine, EngineConfig
from runtimes.llm.engine.model_runner import Pooler
from runtimes.llm.engine.scheduler import Scheduler
from runtimes.llm.engine.step_budget import SchedulerConfig
from runtimes.llm.model.embedding_config import EmbeddingConfig
from runtimes.llm.model.encoders.encoder import Encoder
from runtimes.llm.model.matrix import Weight, WeightsName, held, moved
from runtimes.llm.model.model_config import UnsupportedModel
from runtimes.llm.sequence import Sampled, StepBatch
from runtimes.llm.weights.encoder_files import encoder_files
from runtimes.llm.weights.loader import DeviceName, DtypeName, check_weight, choose_device, choose_dtype
from runtimes.llm.weights.task_adapters import TaskAdapter


def read_encoder(
    path: Path,
    *,
    dtype: DtypeName = "auto",
    device: DeviceName = "auto",
    weights: WeightsName = "auto",
    adapter: TaskAdapter | None = None,
) -> Encoder:
    """Raises UnsupportedModel, InvalidCheckpoint or InvalidGguf for an unusable model, ValueError for an unknown
    device."""
    target = choose_device(device)
    number = choose_dtype(dtype, target)
    files = encoder_files(path, adapter)

    def tensor(name: str, shape: tuple[int, ...]) -> Weight:
        stored, weight = files.weight(name)
        check_weight(stored, weight, shape)
        how: WeightsName = "unquantized" if name.startswith("embeddings.") or "relative" in name else weights
        return moved(held(name, weight, how, number), target)

    try:
        encoder = Encoder(files.config, tensor)
    except (TypeError, AttributeError, LookupError, ArithmeticError) as error:
        raise UnsupportedModel(f"the configuration of {path.name} is not valid: {error!r}") from error
    if unread := files.unread():
        raise UnsupportedModel(
            f"{path.name} has tensor {unread[0]}, which this engine computes nothing with: its vectors would be wrong."
            " A server that supports the model can be started with `kind: vllm`"
        )
    return encoder


def load_encoder(config: EngineConfig, embedding: EmbeddingConfig, adapter: TaskAdapter | None = None) -> Engine:
    """Like `Engine.load` for models that answer."""
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    encoder = read_encoder(
        config.model, dtype=config.dtype, device=config.device, weights=config.weights, adapter=adapter
    )
    return encoder_engine(encoder, config, embedding)


def encoder_engine(encoder: Encoder, config: EngineConfig, embedding: EmbeddingConfig) -> Engine:
    """Texts are batched as answers are, and each is computed whole. Raises ValueError if the bounds make no sense."""
    context = encoder.config.context_length
    longest = config.max_model_len or min(context, embedding.max_length or context)
    if longest > context:
        raise ValueError(f"max_model_len is {longest}; the model's context is {context} tokens")
    bounds = SchedulerConfig(
        max_model_len=longest,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=max(config.max_num_batched_tokens, longest),
        max_queue=config.max_queue,
        whole_prompts=True,
    )
    # No keys and values are stored: the one page of a text is its slot in the step.
    places = BlockManager(config.max_num_seqs, longest, caching=False)
    return Engine(
        Scheduler(bounds, places),
        _NoAnswers(),
        vocab_size=encoder.config.vocab_size,
        eos_token_ids=frozenset(),
        pooler=Pooler(encoder),
    )


class _NoAnswers:
    """The runner of an encoder, which generates no text."""

    def run(self, batch: StepBatch) -> dict[int, Sampled]:
        assert not batch.chunks
        return {}
