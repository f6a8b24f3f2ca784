"""A weight matrix, whole or in groups of small integers, and the two operations on it.

GroupQuantized is the form of every weight-only format, of GGUF files and our own: along its rows a matrix is
cut into groups, each with a scale and perhaps an offset, and a weight is scale × code + offset.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

_NUMBERS_AT_ONCE = 1 << 17


@dataclass(frozen=True, slots=True)
class GroupQuantized:
    """A matrix [out, in] of codes; `group` of them in a row share a scale and an offset.

    `codes` is int8 [out, in]: -8 … 7 where `bits` is 4, else -128 … 127. `scales` and `offsets` are float16
    [out, in / group]; no offsets is all 0. `dtype` is the type of the computation.
    """

    codes: Tensor
    scales: Tensor
    offsets: Tensor | None
    bits: Literal[4, 8]
    group: int
    dtype: torch.dtype

    @property
    def shape(self) -> torch.Size:
        return self.codes.shape

    @property
    def device(self) -> torch.device:
        return self.codes.device

    def dequantized(self, rows: Tensor | None = None) -> Tensor:
        """[out, in], or [*rows.shape, in] of those rows, in `dtype`."""
        if rows is not None:
            return with_rows(self, rows.flatten()).dequantized().view(*rows.shape, -1)
        whole = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        # Some rows at a time: intermediate tensors stay in the processor's cache.
        count = max(_NUMBERS_AT_ONCE // max(self.shape[1], 1), 1)
        for first in range(0, len(whole), count):
            part = slice(first, first + count)
            grouped = self.codes[part].unflatten(-1, (-1, self.group)) * self.scales[part].float()[..., None]
            if self.offsets is not None:
                grouped += self.offsets[part].float()[..., None]
            whole[part] = grouped.flatten(-2)
        return whole


Weight: TypeAlias = Tensor | GroupQuantized


def linear(rows: Tensor, weight: Weight, bias: Tensor | None = None) -> Tensor:
    """[..., in] × [out, in] → [..., out]."""
    return functional.linear(rows, weight.dequantized() if isinstance(weight, GroupQuantized) else weight, bias)


def embedding(token_ids: Tensor, weight: Weight) -> Tensor:
    """The rows `token_ids` of a matrix: [T] → [T, in]."""
    if isinstance(weight, GroupQuantized):
        return weight.dequantized(token_ids)
    return functional.embedding(token_ids, weight)


def moved(weight: Weight, device: torch.device) -> Weight:
    """The same on `device`."""
    if not isinstance(weight, GroupQuantized):
        return weight.to(device)
    offsets = None if weight.offsets is None else weight.offsets.to(device)
    return replace(weight, codes=weight.codes.to(device), scales=weight.scales.to(device), offsets=offsets)


def with_rows(weight: Weight, rows: Tensor) -> Weight:
    """The given rows, in that order."""
    if not isinstance(weight, GroupQuantized):
        return weight[rows]
    offsets = None if weight.offsets is None else weight.offsets[rows]
    return replace(weight, codes=weight.codes[rows], scales=weight.scales[rows], offsets=offsets)


def concatenated(weights: Sequence[Weight]) -> Weight:
    """One above the other: matrices that are multiplied by the same rows become one.

    Those that are quantized differently are brought to codes that hold all of them, which changes no number. If some
    are not quantized none is.
    """
    quantized = [weight for weight in weights if isinstance(weight, GroupQuantized)]
    if len(quantized) < len(weights):
        return torch.cat([one.dequantized() if isinstance(one, GroupQuantized) else one for one in weights])
    group = math.gcd(*[one.group for one in quantized])
    alike = [_regrouped(one, group) for one in quantized]
    offsets = None
    if any(one.offsets is not None for one in alike):
        offsets = torch.cat([torch.zeros_like(one.scales) if one.offsets is None else one.offsets for one in alike])
    return GroupQuantized(
        torch.cat([one.codes for one in alike]),
        torch.cat([one.scales for one in alike]),
        offsets,
        max(one.bits for one in alike),
        group,
        alike[0].dtype,
    )


def _regrouped(weight: GroupQuantized, group: int) -> GroupQuantized:
    """The same numbers in smaller groups."""
    if weight.group == group:
        return weight
    times = weight.group // group
    offsets = None if weight.offsets is None else weight.offsets.repeat_interleave(times, dim=1)
    return replace(weight, scales=weight.scales.repeat_interleave(times, dim=1), offsets=offsets, group=group)
