"""The executor of a GPU: the model in torch, attention in Triton, single tokens by CUDA graphs."""

from collections.abc import Sequence

import torch
from torch import Tensor

from runtimes.llm.cuda.graphs import Graphs, Record, record_graph, scratch_row, sizes_up_to
from runtimes.llm.cuda.layout import POSITION, TOKEN, CudaLayout
from runtimes.llm.engine.sequence import Chunk
from runtimes.llm.model.attention import KVCache
from runtimes.llm.model.llama import Llama

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
        return self.model.forward(token_ids, positions, self.rotary, self.cache, layout)

    def _single_tokens(self, step: Tensor) -> Tensor:
        layout = CudaLayout.of_single_tokens(step, self._group, self._segments(len(step)))
        token_ids, positions = step[:, TOKEN].long(), step[:, POSITION].long()
        hidden = self.model.forward(token_ids, positions, self.rotary, self.cache, layout)
        return self.model.logits(hidden).float()

    def _segments(self, sequences: int) -> int:
        """A power of 2."""
        segments = PROGRAMS // (sequences * self.model.config.num_kv_heads)
        return min(MOST_SEGMENTS, 1 << max(0, segments.bit_length() - 1))
