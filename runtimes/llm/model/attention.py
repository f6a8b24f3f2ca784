"""Attention over a paged KV cache, in plain torch: the reference for every faster kernel.

Shapes: T tokens in the step, H query heads, K key/value heads, D head size, B block size. The tokens of a step are
concatenated without padding; `Layout` has the sequence and the page of each. A window is what a token attends to:
`Reach`.

A page holds numbers, or codes of eight bits that take half the memory of bfloat16. Of codes, every position's key (and
value) of every head has a scale of its own, its greatest number over 127: a page is written token by token, and tokens
in it must not change.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from runtimes.llm.model.model_config import Reach, TextPiece
from runtimes.llm.sequence import Chunk

if TYPE_CHECKING:
    from runtimes.llm.model.recurrent.states import StateCache

_SCALE = torch.float32


@dataclass(frozen=True, slots=True)
class SmallPages:
    """`codes` is int8 [..., K, D], `scales` [..., K]; a number is scale × code."""

    codes: Tensor
    scales: Tensor

    def __getitem__(self, layer: int) -> "SmallPages":
        return SmallPages(self.codes[layer], self.scales[layer])

    @property
    def shape(self) -> torch.Size:
        return self.codes.shape


Pages: TypeAlias = Tensor | SmallPages


def new_pages(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Pages:
    """New pages, not initialized. `dtype` int8 is codes."""
    numbers = torch.empty(shape, dtype=dtype, device=device)
    if dtype != torch.int8:
        return numbers
    return SmallPages(numbers, torch.empty(shape[:-1], dtype=_SCALE, device=device))


def bytes_per_position(heads: int, head_dim: int, dtype: torch.dtype) -> int:
    """Bytes of one position in one layer's keys, or values."""
    scale = _SCALE.itemsize if dtype == torch.int8 else 0
    return heads * (head_dim * int(dtype.itemsize) + int(scale))


def clear(pages: Pages, blocks: Tensor) -> None:
    """Zero whole pages of every layer: [layers, pages, ...]."""
    if isinstance(pages, SmallPages):
        pages.codes.index_fill_(1, blocks, 0)
        pages.scales.index_fill_(1, blocks, 0)
    else:
        pages.index_fill_(1, blocks, 0)


def store(pages: Pages, slots: Tensor, numbers: Tensor) -> None:
    """Write `numbers` [T, K, D] at the positions `slots` [T], page × B + offset, of one layer."""
    if not isinstance(pages, SmallPages):
        pages.view(-1, *pages.shape[2:]).index_copy_(0, slots, numbers)
        return
    numbers = numbers.float()
    scales = numbers.abs().amax(-1) / 127
    codes = (numbers / scales.clamp(min=torch.finfo(_SCALE).tiny)[..., None]).round_()
    # The scale of NaN is NaN, so NaN is read back as NaN.
    codes = codes.nan_to_num_().clamp_(-127, 127).to(torch.int8)
    pages.codes.view(-1, *pages.shape[2:]).index_copy_(0, slots, codes)
    pages.scales.view(-1, pages.shape[2]).index_copy_(0, slots, scales)


def fetch(pages: Pages, blocks: Tensor, dtype: torch.dtype) -> Tensor:
    """A copy of the pages `blocks` [n] of one layer: [n, B, K, D]."""
    # index_select copies whole pages; indexing by a tensor copies number by number on CPUs.
    if not isinstance(pages, SmallPages):
        return pages.index_select(0, blocks)
    scales = pages.scales.index_select(0, blocks)[..., None]
    return (pages.codes.index_select(0, blocks) * scales).to(dtype)


class KVCache:
    """Keys and values of every layer: `keys_of(layer)` and `values_of(layer)` are [num_blocks, B, K, D].

    `dtype` int8 holds codes and their scales. Of one tensor, keys are values too. `heads` are K and D of each layer, if
    they differ.
    """

    def __init__(
        self, *, num_layers: int, num_blocks: int, block_size: int, num_kv_heads: int, head_dim: int,
        dtype: torch.dtype, device: torch.device, tensors: int = 2, inputs: Tensor | None = None,
        states: "StateCache | None" = None, heads: Sequence[tuple[int, int]] = (),
    ) -> None:  # fmt: skip
        self.num_blocks = num_blocks
        self.block_size = block_size
        each = list(heads) or [(num_kv_heads, head_dim)] * num_layers
        alike = list(dict.fromkeys(each)) or [(num_kv_heads, head_dim)]
        self._places = [(alike.index(own), each[:layer].count(own)) for layer, own in enumerate(each)]
        self._groups: list[tuple[Pages, Pages]] = []
        for own in alike:
            shape = (each.count(own), num_blocks, block_size, *own)
            keys = new_pages(shape, dtype, device)
            self._groups.append((keys, new_pages(shape, dtype, device) if tensors == 2 else keys))
        self.keys, self.values = self._groups[0]
        """Of all layers, [layers, num_blocks, B, K, D]; where heads differ, of the layers that are like the first."""
        self.inputs = inputs
        """Of layers with a short convolution or an indexer, [layers, num_blocks, B, numbers]; no number of another
        owner is used."""
        self.states = states
        """Of recurrent layers, by slot."""

    def keys_of(self, layer: int) -> Pages:
        """[num_blocks, B, K, D]."""
        group, place = self._places[layer]
        return self._groups[group][0][place]

    def values_of(self, layer: int) -> Pages:
        """[num_blocks, B, K, D]."""
        group, place = self._places[layer]
        return self._groups[group][1][place]

    def clear(self, blocks: Tensor) -> None:
        """Zero whole pages, in every layer.

        A masked position still takes part with weight 0, and 0 × NaN is NaN: overflowed numbers of a page's last owner
        must not reach the next owner.
        """
        for keys, values in self._groups:
            clear(keys, blocks)
            clear(values, blocks)


@dataclass(frozen=True, slots=True)
class ScoreOptions:
    """The computation of scores in all layers of a kind.

    Scores are multiplied by `scale`, 1 / √D if None, and kept within ± `soft_cap`. `window` is one of the step's.
    """

    window: Reach = None
    scale: float | None = None
    soft_cap: float | None = None

    def scale_of(self, query: Tensor) -> float:
        """The factor of the scores of a `query` [..., D]."""
        return query.shape[-1] ** -0.5 if self.scale is None else self.scale


class Attention(Protocol):
    """The attention of the tokens of one step, the same in every layer."""

    def attend(
        self, query: Tensor, key: Tensor | None, value: Tensor | None, keys: Pages, values: Pages, scores: ScoreOptions,
        sinks: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Store the step's keys and values in the cache, then attend causally over each sequence's own pages.

        `query` is [T, H, D], `key` and `value` [T, K, D], `keys` and `values` one layer's cache, changed in place.
        Without `key` and `value` the cache has them already, of another layer. `sinks` [H], float32, are one more score
        of each head, of no value. Returns [T, H, D].
        """


@dataclass(frozen=True, slots=True)
class _Seen:
    """The positions of their sequences' pages that tokens attend to, through one window."""

    blocks: Tensor  # of a chunk [pages]; of single tokens [tokens, pages of the longest], padded with their own first
    mask: Tensor | None  # where they may look: [tokens, positions], [tokens, 1, 1, positions]; None if plainly causal


@dataclass(frozen=True, slots=True)
class _Prefill:
    """Several tokens of one sequence: rows `first` … `last` of the step."""

    first: int
    last: int
    seen: Mapping[Reach, _Seen]  # by window


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of a step's tokens, the same for every layer: first all single tokens, then the longer chunks."""

    begun: Tensor  # pages whose first position is written in this step
    slots: Tensor  # [T] the cache position each token's key and value go to: page × B + offset
    num_decodes: int  # single tokens
    decodes: Mapping[Reach, _Seen]  # the positions they attend to, by window
    prefills: tuple[_Prefill, ...]

    @classmethod
    def of(
        cls,
        chunks: Sequence[Chunk],
        block_size: int,
        device: torch.device,
        windows: Collection[Reach] = (None,),
    ) -> "Layout":
        """The layout of `chunks`, which must have the single-token ones in front, for layers of these `windows`."""
        slots = [
            chunk.block_table[position // block_size] * block_size + position % block_size
            for chunk in chunks
            for position in range(chunk.start, chunk.end)
        ]
        begun = [slot // block_size for slot in slots if slot % block_size == 0]
        decodes = [chunk for chunk in chunks if len(chunk.token_ids) == 1]
        prefills, first = [], len(decodes)
        for chunk in chunks[len(decodes) :]:
            seen = {window: _seen_by_chunk(chunk, window, block_size, device) for window in windows}
            prefills.append(_Prefill(first, first + len(chunk.token_ids), seen))
            first = prefills[-1].last
        return cls(
            begun=torch.tensor(begun, dtype=torch.long, device=device),
            slots=torch.tensor(slots, device=device),
            num_decodes=len(decodes),
            decodes={window: _seen_by_tokens(decodes, window, block_size, device) for window in windows},
            prefills=tuple(prefills),
        )

    def narrowed(self, selected: Callable[[slice, Tensor, Tensor], Tensor]) -> "Layout":
        """The layout of tokens that attend to fewer positions: to those that `selected` leaves of a mask
        [rows, positions], given the rows and the pages. Of layers without a window."""
        decodes, prefills = self.decodes[None], []
        if self.num_decodes and decodes.mask is not None:
            left = selected(slice(0, self.num_decodes), decodes.blocks, decodes.mask[:, 0, 0])
            decodes = _Seen(decodes.blocks, left[:, None, None])
        for prefill in self.prefills:
            seen, count = prefill.seen[None], prefill.last - prefill.first
            mask = seen.mask
            if mask is None:
                mask = torch.ones(count, count, dtype=torch.bool, device=self.slots.device).tril()
            left = selected(slice(prefill.first, prefill.last), seen.blocks, mask)
            prefills.append(_Prefill(prefill.first, prefill.last, {None: _Seen(seen.blocks, left)}))
        return Layout(self.begun, self.slots, self.num_decodes, {None: decodes}, tuple(prefills))

    def attend(
        self, query: Tensor, key: Tensor | None, value: Tensor | None, keys: Pages, values: Pages, scores: ScoreOptions,
        sinks: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """See `Attention.attend`."""
        if key is not None and value is not None:
            store(keys, self.slots, key)
            store(values, self.slots, value)
        how = _Scoring(scores.scale_of(query), scores.soft_cap, sinks)
        outputs = []
        if self.num_decodes:
            seen = self.decodes[scores.window]
            outputs.append(_attend_once(query[: self.num_decodes], keys, values, seen, how))
        for prefill in self.prefills:
            rows = query[prefill.first : prefill.last]
            outputs.append(_attend_chunk(rows, keys, values, prefill.seen[scores.window], how))
        return torch.cat(outputs)


@dataclass(frozen=True, slots=True)
class _Scoring:
    scale: float
    soft_cap: float | None
    sinks: Tensor | None

    @property
    def plain(self) -> bool:
        """Whether torch's own attention computes it."""
        return self.soft_cap is None and self.sinks is None


def _seen_by_chunk(chunk: Chunk, window: Reach, block_size: int, device: torch.device) -> _Seen:
    first = _first_page(chunk.start, window, block_size)
    blocks = torch.tensor(chunk.block_table[first : -(-chunk.end // block_size)], device=device)
    if chunk.start == 0 and _first_seen(chunk.end - 1, window) <= 0:
        return _Seen(blocks, None)
    query = torch.arange(chunk.start, chunk.end, device=device)[:, None]
    key = torch.arange(first * block_size, chunk.end, device=device)
    if isinstance(window, TextPiece):
        return _Seen(blocks, (key <= query) & (key >= query - query % window.size))
    return _Seen(blocks, (key <= query) if window is None else (key <= query) & (key > query - window))


def _seen_by_tokens(chunks: list[Chunk], window: Reach, block_size: int, device: torch.device) -> _Seen:
    firsts = [_first_page(chunk.start, window, block_size) for chunk in chunks]
    tables = [[*c.block_table[first : -(-c.end // block_size)]] for c, first in zip(chunks, firsts, strict=True)]
    pages = max(map(len, tables), default=0)
    # Padding with the sequence's own first page keeps other sequences' numbers out of the arithmetic.
    padded = [(table + table[:1] * pages)[:pages] for table in tables]
    ends = [chunk.end - first * block_size for chunk, first in zip(chunks, firsts, strict=True)]
    end = torch.tensor(ends, device=device)[:, None]
    key = torch.arange(pages * block_size, device=device)
    mask = key < end
    if window is not None:
        lows = [_first_seen(c.end - 1, window) - first * block_size for c, first in zip(chunks, firsts, strict=True)]
        mask = mask & (key >= torch.tensor(lows, device=device)[:, None])
    return _Seen(torch.tensor(padded, dtype=torch.long, device=device), mask[:, None, None, :])


def _first_seen(position: int, window: Reach) -> int:
    """The first position that one at `position` attends to; below 0 is 0."""
    if window is None:
        return 0
    return position - position % window.size if isinstance(window, TextPiece) else position + 1 - window


def _first_page(position: int, window: Reach, block_size: int) -> int:
    """The index of the first page that a token at `position` attends to."""
    return max(0, _first_seen(position, window)) // block_size


def _attend_once(query: Tensor, keys: Pages, values: Pages, seen: _Seen, how: _Scoring) -> Tensor:
    """All single tokens at once. Query heads that share a key head ride as rows of one query."""
    count = len(query)
    kv_heads, head_dim = keys.shape[2:]
    flat = seen.blocks.view(-1)
    key = fetch(keys, flat, query.dtype).view(count, -1, kv_heads, head_dim).transpose(1, 2)
    value = fetch(values, flat, query.dtype).view(count, -1, kv_heads, head_dim).transpose(1, 2)
    grouped = query.view(count, kv_heads, -1, head_dim)
    if how.plain:
        output = functional.scaled_dot_product_attention(grouped, key, value, attn_mask=seen.mask, scale=how.scale)
    else:
        sinks = None if how.sinks is None else how.sinks.view(kv_heads, -1, 1)
        output = _attended(grouped, key, value, seen.mask, how, sinks)
    return output.reshape(count, -1, head_dim)


def _attend_chunk(query: Tensor, keys: Pages, values: Pages, seen: _Seen, how: _Scoring) -> Tensor:
    count, _, head_dim = query.shape
    kv_heads = keys.shape[2]
    length = count if seen.mask is None else seen.mask.shape[-1]
    key = fetch(keys, seen.blocks, query.dtype).flatten(0, 1)[:length].transpose(0, 1)
    value = fetch(values, seen.blocks, query.dtype).flatten(0, 1)[:length].transpose(0, 1)
    if not how.plain:
        causal = torch.ones(count, count, dtype=torch.bool, device=query.device).tril()
        grouped = query.view(count, kv_heads, -1, head_dim).permute(1, 2, 0, 3)
        mask = causal if seen.mask is None else seen.mask
        sinks = None if how.sinks is None else how.sinks.view(kv_heads, -1, 1, 1)
        return _attended(grouped, key[:, None], value[:, None], mask, how, sinks).flatten(0, 1).transpose(0, 1)
    output = functional.scaled_dot_product_attention(
        query.transpose(0, 1)[None], key[None], value[None], attn_mask=seen.mask, is_causal=seen.mask is None,
        scale=how.scale, enable_gqa=True,
    )  # fmt: skip
    return output[0].transpose(0, 1)


def _attended(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, how: _Scoring, sinks: Tensor | None
) -> Tensor:
    """Attention with soft_cap × tanh(score / soft_cap) or sinks: [..., n, D] over [..., positions, D]."""
    scores = query.float() @ key.float().transpose(-1, -2) * how.scale
    if how.soft_cap is not None:
        scores = torch.tanh(scores / how.soft_cap) * how.soft_cap
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.expand(*scores.shape[:-1], 1)], dim=-1)
        shares = scores.softmax(dim=-1)[..., :-1]
    else:
        shares = scores.softmax(dim=-1)
    return (shares @ value.float()).to(query.dtype)
