"""The executor of a GPU: the model in torch, attention in Triton, single tokens by CUDA graphs.

Single tokens are recorded as graphs: one launch instead of a thousand. A graph has one size, so a step is padded to the
next size: a padding token reads and writes the scratch page, which no sequence owns, and its result is discarded.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from runtimes.llm.cuda.layout import POSITION, TABLE, TOKEN, CudaLayout
from runtimes.llm.model.attention import KVCache
from runtimes.llm.model.llama import Llama
from runtimes.llm.model.lora import LowRankAdapter, adapted_rows
from runtimes.llm.picture_rows import placed_rows
from runtimes.llm.sequence import Chunk, SamplingParams, StepAdapter

Compute = Callable[[Tensor], Tensor]
"""Computes a step int32 [S, TABLE + pages]: float32 [S, vocab]."""
Record = Callable[[Compute, Tensor], Callable[[], Tensor]]
"""Replays that step with the current contents of the same memory."""


def sizes_up_to(most: int) -> list[int]:
    """Batch sizes of graphs: 1, 2, 4, then multiples of 8, from 64 on of 16.

    Little padding is computed, and few graphs are stored.
    """
    sizes = [1, 2, 4, *range(8, min(most, 64), 8), *range(64, most, 16)]
    return [*(size for size in sizes if size < most), most]


class Graphs:
    """One for each size, recorded at the start, the largest first: the others fit into its memory."""

    def __init__(
        self, compute: Compute, record: Record, sizes: Sequence[int], pages: int, scratch: Tensor, device: torch.device
    ) -> None:
        """`pages` is the width of the tables, `scratch` [TABLE + pages] the row of a padding token."""
        self._scratch = scratch.cpu()
        self._sizes = sorted(sizes)
        self._steps: dict[int, Tensor] = {}
        self._replay: dict[int, Callable[[], Tensor]] = {}
        self._pages = pages
        for size in reversed(self._sizes):
            self._steps[size] = scratch.repeat(size, 1).to(device)
            self._replay[size] = record(compute, self._steps[size])

    def takes(self, chunks: Sequence[Chunk]) -> bool:
        """Whether a step has single tokens only, no more than the largest graph, no adapter and no picture."""
        plain = all(len(chunk.token_ids) == 1 and chunk.adapter is None and chunk.pictures is None for chunk in chunks)
        return len(chunks) <= self._sizes[-1] and plain

    def run(self, chunks: Sequence[Chunk], block_size: int) -> Tensor:
        """Logits [len(chunks), vocab], which the next step overwrites."""
        size = self._sizes[bisect_left(self._sizes, len(chunks))]
        rows = [row_of(chunk, block_size, self._pages) for chunk in chunks]
        step = self._scratch.repeat(size, 1)
        step[: len(rows)] = torch.tensor(rows, dtype=torch.int32)
        self._steps[size].copy_(step, non_blocking=True)
        return self._replay[size]()[: len(rows)]


def row_of(chunk: Chunk, block_size: int, pages: int) -> list[int]:
    """A chunk of one token as a row of a step."""
    table = chunk.block_table
    slot = table[chunk.start // block_size] * block_size + chunk.start % block_size
    filled = [*table[:pages], *[0] * (pages - len(table))]
    return [chunk.token_ids[0], chunk.start, slot, chunk.end, *filled]


def scratch_row(page: int, block_size: int, pages: int) -> Tensor:
    """The row of a padding token: the first position of the scratch page."""
    row = torch.full((TABLE + pages,), page, dtype=torch.int32)
    row[:TABLE] = torch.tensor([0, 0, page * block_size, 1], dtype=torch.int32)
    return row


def record_graph(compute: Compute, step: Tensor) -> Callable[[], Tensor]:
    """Records graphs on a GPU."""
    with torch.inference_mode():
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # compiles kernels and chooses algorithms, which cannot be recorded
            compute(step)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=_pool()):
            logits = compute(step)

    def replay() -> Tensor:
        graph.replay()
        return logits

    return replay


_POOLS: list[tuple[int, int]] = []


def _pool() -> tuple[int, int]:
    """The memory pool that all graphs share."""
    if not _POOLS:
        _POOLS.append(torch.cuda.graph_pool_handle())
    return _POOLS[0]


PROGRAMS = 256
"""About as many as keep a GPU at work; where heads and sequences are fewer, positions are cut into segments."""
MOST_SEGMENTS = 16


class CudaExecutor:
    """An executor on a GPU. Its cache has one additional page, the last, for the padding tokens of a graph."""

    def __init__(
        self,
        model: Llama,
        num_blocks: int,
        block_size: int,
        *,
        context_length: int | None = None,
        kv_dtype: torch.dtype | None = None,
        max_num_seqs: int = 0,
        record: Record = record_graph,
    ) -> None:
        """Steps of up to `max_num_seqs` single tokens are recorded by `record`."""
        config = model.config
        longest = context_length or config.context_length
        self.model = model
        self.rotary = model.rotary(longest)
        self.cache = KVCache(
            num_layers=config.num_layers,
            num_blocks=num_blocks + 1,
            block_size=block_size,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            dtype=kv_dtype or model.dtype,
            device=model.device,
        )
        self._group = config.num_heads // config.num_kv_heads
        self._graphs = self._recorded(max_num_seqs, num_blocks, -(-longest // block_size), record)

    def _recorded(self, most: int, scratch: int, pages: int, record: Record) -> Graphs | None:
        if most < 1:
            return None
        row = scratch_row(scratch, self.cache.block_size, pages)
        return Graphs(self._single_tokens, record, sizes_up_to(most), pages, row, self.model.device)

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def logits(self, chunks: Sequence[Chunk], rows: Sequence[int]) -> Tensor:
        if self._graphs is not None and self._graphs.takes(chunks):
            logits = self._graphs.run(chunks, self.cache.block_size)
            return logits if list(rows) == list(range(len(chunks))) else logits[list(rows)]
        hidden = self._forward(chunks)
        return self.model.logits(hidden[torch.tensor(rows, dtype=torch.long, device=hidden.device)]).float()

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def hidden(self, chunks: Sequence[Chunk]) -> Tensor:
        return self._forward(chunks).float()

    def _forward(self, chunks: Sequence[Chunk]) -> Tensor:
        device = self.model.device
        token_ids = torch.tensor([token for chunk in chunks for token in chunk.token_ids], device=device)
        positions = torch.tensor([p for chunk in chunks for p in range(chunk.start, chunk.end)], device=device)
        layout = CudaLayout.of(chunks, self.cache.block_size, self._group, device)
        adapted = adapted_rows(chunks, device)
        pictures = placed_rows(chunks)
        return self.model.forward(token_ids, positions, self.rotary, self.cache, layout, adapted, pictures=pictures)

    def prepared(self, adapter: LowRankAdapter) -> StepAdapter:
        return adapter.to(self.model.dtype, self.model.device)

    def _single_tokens(self, step: Tensor) -> Tensor:
        layout = CudaLayout.of_single_tokens(step, self._group, self._segments(len(step)))
        token_ids, positions = step[:, TOKEN].long(), step[:, POSITION].long()
        hidden = self.model.forward(token_ids, positions, self.rotary, self.cache, layout)
        return self.model.logits(hidden).float()

    def _segments(self, sequences: int) -> int:
        """A power of 2."""
        segments = PROGRAMS // (sequences * self.model.config.num_kv_heads)
        return min(MOST_SEGMENTS, 1 << max(0, segments.bit_length() - 1))


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
