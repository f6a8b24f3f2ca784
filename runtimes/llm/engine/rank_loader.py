"""Loads an engine, and the other ranks that compute its steps with it if it has any."""

from dataclasses import replace

import torch

from runtimes.llm.engine.core import Engine
from runtimes.llm.engine.draft_model import load_draft
from runtimes.llm.engine.engine_config import EngineConfig
from runtimes.llm.weights.loader import choose_device, load_model, open_checkpoint


def load_engine(config: EngineConfig) -> Engine:
    """Raises ValueError for an invalid model, invalid bounds, or a number of ranks that cannot share the model."""
    if config.tensor_parallel == 1:
        return Engine.load(config)
    device = choose_device(config.device)
    if config.executor == "native":
        raise ValueError("tensor_parallel needs executor: torch or auto, because the native step is one process")
    if device.type == "cpu":
        config = replace(config, executor="torch")
    return _load_ranked(config, device)


def _load_ranked(config: EngineConfig, device: torch.device) -> Engine:
    from runtimes.llm.engine.ranks.channel import RankOptions
    from runtimes.llm.engine.ranks.others import Ranks
    from runtimes.llm.model.split import ModelSplit

    size = config.tensor_parallel
    split = ModelSplit.of(open_checkpoint(config.model).config, 0, size)
    threads = config.threads or max(1, torch.get_num_threads() // size)
    torch.set_num_threads(threads)
    # On a CPU, rank 0 counts the pages of all ranks; every GPU has its own part of the bytes.
    if device.type == "cuda":
        config = replace(config, kv_cache_bytes=config.kv_cache_bytes // size)
    options = RankOptions(
        size=size, model=str(config.model), dtype=config.dtype, device=device.type, weights=config.weights,
        executor=config.executor, threads=threads, kv_cache_bytes=config.kv_cache_bytes,
        kv_cache_share=config.kv_cache_share, kv_cache_dtype=config.kv_cache_dtype, block_size=config.block_size,
        max_num_batched_tokens=config.max_num_batched_tokens, step_rows=config.step_rows,
    )  # fmt: skip
    ranks = Ranks(split)
    try:
        ranks.launch(options)
        model = load_model(
            config.model, dtype=config.dtype, device=config.device, weights=config.weights, native=False,
            ranks=ranks.group,
        )  # fmt: skip
        ranks.connect(model.device)
        return Engine.serving(model, config, load_draft(config), ranks)
    except BaseException:
        ranks.close()
        raise
