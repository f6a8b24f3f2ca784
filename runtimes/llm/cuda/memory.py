"""The memory that computing takes on a GPU, measured by the largest step before the cache is allocated."""

from collections.abc import Callable

import torch

from runtimes.llm.cuda.executor import CudaExecutor
from runtimes.llm.engine.sequence import Chunk, SamplingParams
from runtimes.llm.model.llama import Llama

SHARES = 2
"""The graphs hold separate memory, which is no more than the largest step's."""

Measure = Callable[[torch.device, Callable[[], object]], int]
"""The peak of additionally allocated bytes while `run` runs."""


def memory_of_steps(
    model: Llama, max_tokens: int, max_num_seqs: int, block_size: int, measure: Measure | None = None
) -> int:
    """Bytes beside weights and cache, for steps of up to `max_tokens` of up to `max_num_seqs` sequences."""
    chunks = largest_step(max_tokens, max_num_seqs, block_size, model.config.context_length)
    pages = sum(len(chunk.block_table) for chunk in chunks)
    executor = CudaExecutor(model, pages, block_size)
    ends, end = [], -1
    for chunk in chunks:
        end += len(chunk.token_ids)
        ends.append(end)
    return SHARES * (measure or peak)(model.device, lambda: executor.logits(chunks, ends))


def largest_step(max_tokens: int, max_num_seqs: int, block_size: int, context_length: int) -> list[Chunk]:
    """One sequence with all tokens that the others leave, and as many others as possible, with one token each."""
    others = min(max_num_seqs, max_tokens) - 1
    spans = [min(max_tokens - others, context_length), *[1] * others]
    made, page = [], 0
    for identity, count in enumerate(spans):
        pages = -(-count // block_size)
        table = tuple(range(page, page + pages))
        made.append(Chunk(identity, 0, (0,) * count, table, True, SamplingParams(max_tokens=1), 0))
        page += pages
    return made


def peak(device: torch.device, compute: Callable[[], object]) -> int:
    """The measurement on a GPU. Cached memory is released afterwards."""
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    compute()
    torch.cuda.synchronize(device)
    taken: int = torch.cuda.max_memory_allocated(device) - before
    torch.cuda.empty_cache()
    return taken
