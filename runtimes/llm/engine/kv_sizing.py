"""The number of pages of the KV cache, from the memory that it may take."""

from typing import Literal

import torch

from runtimes.llm.engine.memory import MemoryStatus, memory, require
from runtimes.llm.model.kv_pages import bytes_per_position
from runtimes.llm.model.model_config import ModelShape

KVCacheName = Literal["auto", "int8"]
KV_ADVICE = "lower kv_cache (--kv-cache)"


def kv_dtype(name: KVCacheName, dtype: torch.dtype) -> torch.dtype:
    """The number format of the cache for a model that computes in `dtype`."""
    return torch.int8 if name == "int8" else dtype


def kv_bytes_per_token(config: ModelShape, dtype: torch.dtype) -> int:
    """Cache memory of one position, keys and values of all layers together; `dtype` int8 is codes."""
    return 2 * config.num_layers * bytes_per_position(config.num_kv_heads, config.head_dim, dtype)


def kv_blocks(size: int, share: float | None, block_bytes: int, device: torch.device, steps: int = 0) -> int:
    """Pages in `size` bytes, or in a `share` if given: of all memory, or of a GPU's free memory beside the weights and
    the `steps` bytes that computing takes.

    Raises ValueError for less than one page, NotEnoughMemory if the memory is not available.
    """
    if share is not None and not 0 < share <= 1:
        raise ValueError(f"kv_cache_share must be over 0 and at most 1, not {share}")
    there = memory_of(device)
    left = max(0, there.available - steps)
    required = size if share is None else int((left if device.type == "cuda" else there.total) * share)
    if required < block_bytes:
        raise ValueError(f"kv_cache_bytes is {required}; one page alone takes {block_bytes}")
    require("the KV cache", required, left, KV_ADVICE)
    return required // block_bytes


def memory_of(device: torch.device) -> MemoryStatus:
    """The memory of the GPU, or of this machine or container."""
    if device.type != "cuda":
        return memory()
    available, total = torch.cuda.mem_get_info(device)
    return MemoryStatus(total, available)
