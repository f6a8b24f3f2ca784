"""Sparse attention of DeepSeek V3.2 and GLM-5 (DeepSeek-AI 2025, https://arxiv.org/abs/2512.02556, section 2.1): a
small indexer scores all positions before a token, and the token attends to the best of them alone.

The pages hold an index key of every position, as they hold its latent. Up to `most` positions all are attended to, so
nothing is scored. T is the number of tokens in a step, P of positions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from runtimes.llm.model.attention import Attention, Layout
from runtimes.llm.model.matrix import Weight, linear, unquantized, with_rows
from runtimes.llm.model.rope import rotated
from runtimes.llm.model.shapes.parts import IndexShape

_NORM_EPS = 1e-6
_SCORES_AT_ONCE = 1 << 24
"""Tokens × positions, so that a long context needs little memory beside its pages."""


@dataclass(frozen=True, slots=True)
class Indexer:
    """`query` is [heads × size, query rank], `key` [size, hidden], `weights` [heads, hidden]. The norm of keys, [size]
    twice, is float32."""

    query: Weight
    key: Tensor
    key_norm: Tensor
    key_norm_bias: Tensor
    weights: Tensor


def read_indexer(shape: IndexShape, rank: int, turned: int, hidden: int, read: Callable[..., Any]) -> Indexer:
    """`read(name, *sizes)` returns the layer's tensor of that name and shape. Neighbours that turn together are put in
    this engine's order."""
    own = torch.arange(shape.size)
    if shape.neighbours:
        own[:turned] = own[:turned].view(-1, 2).t().flatten()
    rows = (torch.arange(shape.heads)[:, None] * shape.size + own).flatten()
    return Indexer(
        query=with_rows(read("self_attn.indexer.wq_b.weight", shape.heads * shape.size, rank), rows),
        key=unquantized(read("self_attn.indexer.wk.weight", shape.size, hidden))[own],
        key_norm=read("self_attn.indexer.k_norm.weight", shape.size)[own],
        key_norm_bias=read("self_attn.indexer.k_norm.bias", shape.size)[own],
        weights=unquantized(read("self_attn.indexer.weights_proj.weight", shape.heads, hidden)),
    )


def narrowed(
    indexer: Indexer, shape: IndexShape, normed: Tensor, rank_rows: Tensor, turn: tuple[Tensor, Tensor],
    pages: Tensor, layout: Attention,
) -> Attention:  # fmt: skip
    """`layout` with the positions that the indexer selects, for rows [T, hidden] and their latents of queries
    [T, rank]; stores the index keys of the step in the layer's `pages` [pages, page, size]."""
    assert isinstance(layout, Layout)  # `ModelShape.for_torch_alone`
    key = functional.layer_norm(
        linear(normed, indexer.key).float(), (shape.size,), indexer.key_norm, indexer.key_norm_bias, _NORM_EPS
    ).to(normed.dtype)
    flat = pages.view(-1, shape.size)
    flat.index_copy_(0, layout.slots, rotated(key[:, None], *turn)[:, 0])
    query = rotated(linear(rank_rows, indexer.query).unflatten(1, (shape.heads, shape.size)), *turn).float()
    shares = linear(normed.float(), indexer.weights.float()) * shape.heads**-0.5

    def selected(rows: slice, blocks: Tensor, mask: Tensor) -> Tensor:
        if mask.shape[1] <= shape.most:
            return mask
        keys = pages.index_select(0, blocks.flatten()).float()
        keys = keys.view(len(blocks), -1, shape.size) if blocks.dim() > 1 else keys.flatten(0, 1)[: mask.shape[1]]
        scores = _scores(query[rows], shares[rows], keys, shape.size**-0.5).masked_fill(~mask, -torch.inf)
        best = scores.topk(shape.most, dim=1).indices
        return mask & torch.zeros_like(mask).scatter(1, best, True)

    return layout.narrowed(selected)


class Selection:
    """The positions that the layers of one step attend to; `pages` [layers, pages, page, size] are of all indexers."""

    def __init__(self, shape: IndexShape, pages: Tensor) -> None:
        self._shape = shape
        self._pages = iter(pages)
        self._layout: Attention | None = None

    def of(
        self, indexer: Indexer | None, normed: Tensor, rank_rows: Tensor, turn: tuple[Tensor, Tensor], layout: Attention
    ) -> Attention:
        """The layout of the next layer, whose own `indexer` selects, or the last one before it."""
        if indexer is not None:
            self._layout = narrowed(indexer, self._shape, normed, rank_rows, turn, next(self._pages), layout)
        assert self._layout is not None  # as `IndexShape` has it
        return self._layout


def _scores(query: Tensor, shares: Tensor, keys: Tensor, scale: float) -> Tensor:
    """[T, heads, size], [T, heads], and [P, size] or [T, P, size] → [T, P]."""
    count = max(1, _SCORES_AT_ONCE // keys.shape[-2])
    parts = []
    for first in range(0, len(query), count):
        part = slice(first, first + count)
        own = keys[part] if keys.dim() > 2 else keys
        total = torch.zeros(len(query[part]), keys.shape[-2], device=query.device)
        for head in range(query.shape[1]):
            rows = query[part, head]
            products = (own @ rows[..., None])[..., 0] if own.dim() > 2 else rows @ own.t()
            total += shares[part, head, None] * torch.relu(products * scale)
        parts.append(total)
    return torch.cat(parts)
