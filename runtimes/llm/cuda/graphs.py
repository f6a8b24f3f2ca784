"""Steps of single tokens, recorded as CUDA graphs: one launch instead of a thousand.

A graph has one size, so a step is padded to the next size: a padding token reads and writes the scratch page, which no
sequence owns, and its result is discarded.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from runtimes.llm.cuda.layout import TABLE
from runtimes.llm.engine.sequence import Chunk

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
        """Whether a step has single tokens only, and no more than the largest graph."""
        return len(chunks) <= self._sizes[-1] and all(len(chunk.token_ids) == 1 for chunk in chunks)

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
