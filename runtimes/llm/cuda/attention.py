"""Attention over a paged KV cache as Triton kernels.

One program computes some rows of one key head: the query heads that share it, of one token or of several neighbours.
It walks over the sequence's positions a strip at a time, finds each strip's pages in the sequence's table, and keeps
the softmax as it goes (Dao et al. 2022, https://arxiv.org/abs/2205.14135). Few long sequences would leave most of a GPU
idle, so positions can be cut into segments of programs of their own, which `_merge` puts together.

What was not written by the sequence itself is never read: pages need not be cleared.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

STRIP = 32
"""Positions at a time."""


@triton.jit
def _attend(
    query, keys, values, key_scales, value_scales, tables, starts, lengths, tile_sequences, tile_firsts,
    output, sums, maxima, sinks, scale, soft_cap, window, table_stride, kv_heads,
    GROUP: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, PAGE: tl.constexpr, ROWS: tl.constexpr,
    STRIP: tl.constexpr, SEGMENTS: tl.constexpr, CODES: tl.constexpr, CAPPED: tl.constexpr, WINDOWED: tl.constexpr,
    SINKS: tl.constexpr,
):  # fmt: skip
    tile, head, segment = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    sequence = tl.load(tile_sequences + tile)
    first = tl.load(tile_firsts + tile)
    begin = tl.load(starts + sequence)
    count = tl.load(starts + sequence + 1) - begin
    before = tl.load(lengths + sequence) - count

    rows = tl.arange(0, ROWS)
    tokens = first + rows // GROUP
    is_row = (rows < ROWS // GROUP * GROUP) & (tokens < count)
    positions = before + tokens
    places = (begin + tokens).to(tl.int64) * kv_heads * GROUP + head * GROUP + rows % GROUP
    dims = tl.arange(0, WIDTH)
    is_dim = dims < DIM
    queries = tl.load(query + places[:, None] * DIM + dims[None, :], mask=is_row[:, None] & is_dim[None, :], other=0.0)

    end = before + tl.minimum(first + ROWS // GROUP, count)
    low = 0
    if WINDOWED:
        low = tl.maximum(before + first + 1 - window, 0) // STRIP
    high = tl.cdiv(end, STRIP)
    share = tl.cdiv(high - low, SEGMENTS)
    low = low + segment * share

    best = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    if SINKS and segment == 0:  # one more score, of no value
        best = tl.load(sinks + head * GROUP + rows % GROUP)
        total += 1.0
    mixed = tl.zeros([ROWS, WIDTH], tl.float32)
    for strip in range(low, tl.minimum(low + share, high)):
        at = strip * STRIP + tl.arange(0, STRIP)
        there = at < end
        page = tl.load(tables + sequence.to(tl.int64) * table_stride + at // PAGE, mask=there, other=0)
        slot = (page.to(tl.int64) * PAGE + at % PAGE) * kv_heads + head
        key = tl.load(keys + slot[None, :] * DIM + dims[:, None], mask=there[None, :] & is_dim[:, None], other=0)
        value = tl.load(values + slot[:, None] * DIM + dims[None, :], mask=there[:, None] & is_dim[None, :], other=0)
        if CODES:
            key = key.to(tl.float32) * tl.load(key_scales + slot, mask=there, other=0.0)[None, :]
            value = value.to(tl.float32) * tl.load(value_scales + slot, mask=there, other=0.0)[:, None]
        scores = tl.dot(queries, key.to(queries.dtype), input_precision="ieee") * scale
        if CAPPED:
            scores = (2 * tl.sigmoid(2 * scores / soft_cap) - 1) * soft_cap
        seen = there[None, :] & (at[None, :] <= positions[:, None])
        if WINDOWED:
            seen = seen & (at[None, :] > positions[:, None] - window)
        scores = tl.where(seen, scores, -float("inf"))
        better = tl.maximum(best, tl.max(scores, 1))
        base = tl.where(better == -float("inf"), 0.0, better)  # a row that has seen nothing yet
        weights = tl.exp(scores - base[:, None])
        fade = tl.exp(best - base)
        total = total * fade + tl.sum(weights, 1)
        mixed = mixed * fade[:, None]
        mixed += tl.dot(weights.to(queries.dtype), value.to(queries.dtype), input_precision="ieee")
        best = better

    mask = is_row[:, None] & is_dim[None, :]
    if SEGMENTS == 1:
        mixed = mixed / tl.where(total > 0, total, 1.0)[:, None]
        tl.store(output + places[:, None] * DIM + dims[None, :], mixed.to(queries.dtype), mask=mask)
    else:
        part = places * SEGMENTS + segment
        tl.store(output + part[:, None] * DIM + dims[None, :], mixed, mask=mask)
        tl.store(sums + part, total, mask=is_row)
        tl.store(maxima + part, best, mask=is_row)


@triton.jit
def _merge(
    parts, sums, maxima, output,
    DIM: tl.constexpr, WIDTH: tl.constexpr, SEGMENTS: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0).to(tl.int64)
    segments = place * SEGMENTS + tl.arange(0, SEGMENTS)
    dims = tl.arange(0, WIDTH)
    best = tl.load(maxima + segments)
    weights = tl.exp(best - tl.max(best, 0))
    total = tl.sum(tl.load(sums + segments) * weights, 0)
    mixed = tl.load(parts + segments[:, None] * DIM + dims[None, :], mask=(dims < DIM)[None, :], other=0.0)
    mixed = tl.sum(mixed * weights[:, None], 0) / total
    tl.store(output + place * DIM + dims, mixed.to(DTYPE), mask=dims < DIM)


_DTYPES = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}


def attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    scales: tuple[Tensor, Tensor] | None,
    tables: Tensor,
    starts: Tensor,
    lengths: Tensor,
    tiles: tuple[Tensor, Tensor],
    output: Tensor,
    *,
    rows: int,
    segments: int,
    window: int | None,
    scale: float,
    soft_cap: float | None,
    sinks: Tensor | None = None,
) -> None:
    """Attend for the `tiles` (sequences, and which of their tokens is the first) into their rows of `output` [T, H, D].

    `query` is [T, H, D], `keys` and `values` [pages, B, K, D], of codes with `scales` [pages, B, K] each; `tables`
    [S, pages], `starts` [S + 1] and `lengths` [S] int32. A tile has `rows`, a power of 2: tokens times heads of a
    group. `sinks` are float32 [H]. With more than one of the `segments`, also a power of 2, every row of `output`
    belongs to a tile.
    """
    count, heads, dim = query.shape
    kv_heads, page = keys.shape[2], keys.shape[1]
    whole = output
    if segments > 1:
        whole = torch.empty(count, heads, segments, dim, dtype=torch.float32, device=query.device)
    sums = torch.empty(count, heads, segments, dtype=torch.float32, device=query.device)
    maxima = torch.empty_like(sums)
    key_scales, value_scales = scales if scales is not None else (sums, sums)
    width = max(16, triton.next_power_of_2(dim))
    _attend[(len(tiles[0]), kv_heads, segments)](
        query, keys, values, key_scales, value_scales, tables, starts, lengths, *tiles,
        whole, sums, maxima, sums if sinks is None else sinks,
        scale, soft_cap or 0.0, window or 0, tables.stride(0), kv_heads,
        GROUP=heads // kv_heads, DIM=dim, WIDTH=width, PAGE=page, ROWS=rows, STRIP=STRIP, SEGMENTS=segments,
        CODES=scales is not None, CAPPED=soft_cap is not None, WINDOWED=window is not None,
        SINKS=sinks is not None,
    )  # fmt: skip
    if segments > 1:
        _merge[(count * heads,)](
            whole, sums, maxima, output, DIM=dim, WIDTH=width, SEGMENTS=segments, DTYPE=_DTYPES[query.dtype]
        )
