"""Attention over a paged KV cache, in plain torch: the reference that any faster kernel must equal.

Shapes: T tokens in the step, H query heads, K key/value heads, D head size, B block size. The tokens of a step
lie one after the other, without padding; `Layout` says which sequence and which page each belongs to.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from runtimes.llm.sequence import Chunk


class KVCache:
    """Keys and values of every layer: `keys[layer]` and `values[layer]` are [num_blocks, B, K, D]."""

    def __init__(
        self, *, num_layers: int, num_blocks: int, block_size: int, num_kv_heads: int, head_dim: int,
        dtype: torch.dtype, device: torch.device,
    ) -> None:  # fmt: skip
        self.num_blocks = num_blocks
        self.block_size = block_size
        shape = (num_layers, num_blocks, block_size, num_kv_heads, head_dim)
        self.keys = torch.empty(shape, dtype=dtype, device=device)
        self.values = torch.empty(shape, dtype=dtype, device=device)

    def clear(self, blocks: Tensor) -> None:
        """Zero whole pages, in every layer.

        A masked position still takes part with weight 0, and 0 × NaN is NaN: what an overflow of the last owner
        left in a page must not reach the next one.
        """
        self.keys.index_fill_(1, blocks, 0)
        self.values.index_fill_(1, blocks, 0)


@dataclass(frozen=True, slots=True)
class _Prefill:
    """Several tokens of one sequence: rows `first` … `last` of the step, positions `start` … `end`."""

    first: int
    last: int
    end: int
    blocks: Tensor  # [pages of the sequence so far]
    mask: Tensor | None  # [tokens, end] where a query may look, None when plainly causal


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a step's tokens are, for every layer alike: first all single tokens, then the longer chunks."""

    begun: Tensor  # pages whose first position is written in this step
    slots: Tensor  # [T] the cache position each token's key and value go to: page × B + offset
    decode_blocks: Tensor  # [single tokens, pages of the longest], rows padded with their own first page
    decode_mask: Tensor  # [single tokens, 1, 1, positions of those pages] where the token may look
    prefills: tuple[_Prefill, ...]

    @classmethod
    def of(cls, chunks: list[Chunk], block_size: int, device: torch.device) -> "Layout":
        """The layout of `chunks`, which must have the single-token ones in front."""
        slots = [
            chunk.block_table[position // block_size] * block_size + position % block_size
            for chunk in chunks
            for position in range(chunk.start, chunk.end)
        ]
        begun = [slot // block_size for slot in slots if slot % block_size == 0]
        decodes = [chunk for chunk in chunks if len(chunk.token_ids) == 1]
        prefills, first = [], len(decodes)
        for chunk in chunks[len(decodes) :]:
            prefills.append(_prefill(chunk, first, block_size, device))
            first = prefills[-1].last
        blocks, mask = _decode_layout(decodes, block_size, device)
        return cls(
            begun=torch.tensor(begun, dtype=torch.long, device=device),
            slots=torch.tensor(slots, device=device),
            decode_blocks=blocks,
            decode_mask=mask,
            prefills=tuple(prefills),
        )


def _prefill(chunk: Chunk, first: int, block_size: int, device: torch.device) -> _Prefill:
    pages = -(-chunk.end // block_size)
    mask = None
    if chunk.start:
        query, key = torch.arange(chunk.start, chunk.end, device=device), torch.arange(chunk.end, device=device)
        mask = key <= query[:, None]
    blocks = torch.tensor(chunk.block_table[:pages], device=device)
    return _Prefill(first, first + len(chunk.token_ids), chunk.end, blocks, mask)


def _decode_layout(decodes: list[Chunk], block_size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    pages = max((-(-chunk.end // block_size) for chunk in decodes), default=0)
    # Padding with the sequence's own first page keeps other sequences' numbers out of the arithmetic.
    tables = [(chunk.block_table[:pages] + chunk.block_table[:1] * pages)[:pages] for chunk in decodes]
    ends = torch.tensor([chunk.end for chunk in decodes], device=device)
    mask = torch.arange(pages * block_size, device=device) < ends[:, None]
    return torch.tensor(tables, dtype=torch.long, device=device), mask[:, None, None, :]


def paged_attention(query: Tensor, key: Tensor, value: Tensor, keys: Tensor, values: Tensor, layout: Layout) -> Tensor:
    """Store the step's keys and values in the cache, then attend causally over each sequence's own pages.

    `query` is [T, H, D], `key` and `value` [T, K, D], `keys` and `values` one layer's cache, changed in place.
    Returns [T, H, D].
    """
    keys.view(-1, *keys.shape[2:]).index_copy_(0, layout.slots, key)
    values.view(-1, *values.shape[2:]).index_copy_(0, layout.slots, value)
    outputs = [_attend_once(query, keys, values, layout)] if len(layout.decode_blocks) else []
    outputs += [_attend_chunk(query, keys, values, prefill) for prefill in layout.prefills]
    return torch.cat(outputs)


def _attend_once(query: Tensor, keys: Tensor, values: Tensor, layout: Layout) -> Tensor:
    """All single tokens at once. Query heads that share a key head ride as rows of one query."""
    count = len(layout.decode_blocks)
    kv_heads, head_dim = keys.shape[2:]
    flat = layout.decode_blocks.view(-1)
    # index_select copies whole pages; indexing by a tensor copies number by number on CPUs.
    key = keys.index_select(0, flat).view(count, -1, kv_heads, head_dim).transpose(1, 2)
    value = values.index_select(0, flat).view(count, -1, kv_heads, head_dim).transpose(1, 2)
    grouped = query[:count].view(count, kv_heads, -1, head_dim)
    output = functional.scaled_dot_product_attention(grouped, key, value, attn_mask=layout.decode_mask)
    return output.reshape(count, -1, head_dim)


def _attend_chunk(query: Tensor, keys: Tensor, values: Tensor, prefill: _Prefill) -> Tensor:
    key = keys.index_select(0, prefill.blocks).flatten(0, 1)[: prefill.end]
    value = values.index_select(0, prefill.blocks).flatten(0, 1)[: prefill.end]
    output = functional.scaled_dot_product_attention(
        query[prefill.first : prefill.last].transpose(0, 1)[None],
        key.transpose(0, 1)[None],
        value.transpose(0, 1)[None],
        attn_mask=prefill.mask,
        is_causal=prefill.mask is None,
        enable_gqa=True,
    )
    return output[0].transpose(0, 1)
