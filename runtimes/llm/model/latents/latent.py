"""Latent attention (DeepSeek-AI 2024, https://arxiv.org/abs/2405.04434, section 2.1): all heads read one key.

A position's key is its turned dimensions and its latent, [turned + rank] numbers that all heads share. The latent is
also the value, so that the cache holds nothing else: the matrices that would expand it to keys and values of heads
are moved to the queries and to the results, which changes no score. T is the number of tokens in a step, H of heads.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from runtimes.llm.model.attention import Attention, Pages, ScoreOptions
from runtimes.llm.model.latents.sparse import Indexer, Selection, read_indexer
from runtimes.llm.model.matrix import Weight, linear, unquantized, with_rows
from runtimes.llm.model.model_config import LatentShape, ModelShape
from runtimes.llm.model.rope import rotated


@dataclass(frozen=True, slots=True)
class Latent:
    """A layer's weights of latent attention. Of each head, `query` has the turned dimensions before the others.

    `query` [H × (turned + plain), query_rank or hidden] reads `query_down`'s normed product if there is one. `key_up`
    is [H, plain, rank], `value_up` [H, value, rank]. Norms are float32.
    """

    query_down: Weight | None
    query_norm: Tensor | None
    query: Weight
    key_down: Weight
    key_norm: Tensor
    key_up: Tensor
    value_up: Tensor
    indexer: Indexer | None = None
    """None of a layer that takes another's selection too."""


def read_latent(config: ModelShape, shape: LatentShape, read: Callable[..., Any], layer: int) -> Latent:
    """`read(name, *sizes)` returns the layer's tensor of that name and shape."""
    hidden, heads, rank = config.hidden_size, config.num_heads, shape.query_rank
    each, expanded = shape.plain_dim + shape.turned_dim, shape.plain_dim + shape.value_dim
    query = read(f"self_attn.{'q_b_proj' if rank else 'q_proj'}.weight", heads * each, rank or hidden)
    rows = torch.arange(heads * each).view(heads, each)
    turned = _halves(rows[:, shape.plain_dim :], shape)
    key_down = read("self_attn.kv_a_proj_with_mqa.weight", shape.rank + shape.turned_dim, hidden)
    own = torch.arange(shape.rank + shape.turned_dim)
    up = unquantized(read("self_attn.kv_b_proj.weight", heads * expanded, shape.rank)).view(heads, expanded, -1)
    return Latent(
        query_down=read("self_attn.q_a_proj.weight", rank, hidden) if rank else None,
        query_norm=read("self_attn.q_a_layernorm.weight", rank) if rank else None,
        query=with_rows(query, torch.cat([turned, rows[:, : shape.plain_dim]], dim=1).flatten()),
        key_down=with_rows(key_down, torch.cat([_halves(own[None, shape.rank :], shape)[0], own[: shape.rank]])),
        key_norm=read("self_attn.kv_a_layernorm.weight", shape.rank),
        key_up=up[:, : shape.plain_dim].contiguous(),
        value_up=up[:, shape.plain_dim :].contiguous(),
        indexer=None
        if shape.index is None or layer not in shape.index.layers
        else read_indexer(shape.index, rank, shape.turned_dim, hidden, read),
    )


def _halves(rows: Tensor, shape: LatentShape) -> Tensor:
    """Neighbours that turn together, (2i, 2i + 1), in this engine's order, where i turns with i + half."""
    return rows.unflatten(1, (-1, 2)).transpose(1, 2).flatten(1) if shape.neighbours else rows


def attended(
    latent: Latent, shape: LatentShape, normed: Tensor, turn: tuple[Tensor, Tensor], keys: Pages,
    layout: Attention, scores: ScoreOptions, growth: Tensor | None = None, selection: Selection | None = None,
) -> Tensor:  # fmt: skip
    """What the heads see, [T, hidden] → [T, H × value]; stores the positions' keys in the layer's `keys`. Queries are
    multiplied by their `growth` [T]. `selection` is of sparse attention."""
    rows = normed
    if latent.query_down is not None and latent.query_norm is not None:
        rows = _norm(linear(normed, latent.query_down), latent.query_norm, shape)
    if selection is not None:
        layout = selection.of(latent.indexer, normed, rows, turn, layout)
    query = linear(rows, latent.query).unflatten(1, (-1, shape.turned_dim + shape.plain_dim))
    turned, plain = query.split([shape.turned_dim, shape.plain_dim], dim=2)
    place, inner = linear(normed, latent.key_down).split([shape.turned_dim, shape.rank], dim=1)
    moved = torch.einsum("thp,hpr->thr", plain, latent.key_up)
    key = torch.cat([rotated(place[:, None], *turn), _norm(inner, latent.key_norm, shape)[:, None]], dim=2)
    query = torch.cat([rotated(turned, *turn), moved], dim=2)
    if growth is not None:
        query = (query * growth[:, None, None]).to(query.dtype)
    seen = layout.attend(query, key, key, keys, keys, scores)[..., shape.turned_dim :]
    return torch.einsum("thr,hvr->thv", seen, latent.value_up).flatten(1)


def _norm(x: Tensor, weight: Tensor, shape: LatentShape) -> Tensor:
    return functional.rms_norm(x.float(), weight.shape, weight, shape.norm_eps).to(x.dtype)
