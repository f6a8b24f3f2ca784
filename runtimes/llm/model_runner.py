"""One step of the model: a plain-data `Batch` in, the sampled tokens out."""

import torch

from runtimes.llm.attention import KVCache, Layout
from runtimes.llm.model import Llama
from runtimes.llm.sampler import sample
from runtimes.llm.sequence import Batch


class ModelRunner:
    """Owns the model and its KV cache. Keeps nothing about sequences: a batch says all there is to know."""

    def __init__(self, model: Llama, num_blocks: int, block_size: int) -> None:
        self.model = model
        self.cache = KVCache(
            num_layers=model.config.num_layers,
            num_blocks=num_blocks,
            block_size=block_size,
            num_kv_heads=model.config.num_kv_heads,
            head_dim=model.config.head_dim,
            dtype=model.dtype,
            device=model.device,
        )

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def run(self, batch: Batch) -> dict[int, int]:
        """Compute the batch; the next token of each sequence whose chunk `samples`, by sequence id."""
        if not batch.chunks:
            return {}
        chunks = sorted(batch.chunks, key=lambda chunk: len(chunk.token_ids) > 1)  # the layout's order
        device = self.model.device
        token_ids = torch.tensor([token for chunk in chunks for token in chunk.token_ids], device=device)
        positions = torch.tensor([p for chunk in chunks for p in range(chunk.start, chunk.end)], device=device)
        layout = Layout.of(chunks, self.cache.block_size, device)
        self.cache.clear(layout.begun)
        hidden = self.model.forward(token_ids, positions, self.cache, layout)
        rows, sampled, row = [], [], -1
        for chunk in chunks:
            row += len(chunk.token_ids)
            if chunk.samples:
                rows.append(row)
                sampled.append(chunk)
        if not rows:
            return {}
        tokens = sample(self.model.logits(hidden[rows]), sampled)
        return {chunk.sequence_id: token for chunk, token in zip(sampled, tokens, strict=True)}
