"""Pages of the KV cache: as numbers, or as codes of eight bits that take half the memory of bfloat16.

Of codes, every position's key (and value) of every head has a scale of its own, its greatest number over 127: a page is
written token by token, and tokens in it must not change.
"""

from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

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
