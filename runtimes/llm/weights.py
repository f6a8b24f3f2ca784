"""A weight matrix, whole or in groups of small integers, and the two things that are done with one.

GroupQuantized is what every weight-only format comes to, those of GGUF files as well as our own: along its rows a
matrix is cut into groups, each with a scale and perhaps an offset, and a weight is scale × code + offset.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class GroupQuantized:
    """A matrix [out, in] of codes; `group` of them in a row share a scale and an offset.

    `codes` is int8 [out, in]: -8 … 7 where `bits` is 4, else -128 … 127. `scales` and `offsets` are float16
    [out, in / group]; no offsets is all 0. `dtype` is what to compute with.
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
        codes, scales, offsets = self.codes, self.scales, self.offsets
        if rows is not None:
            codes, scales = codes[rows], scales[rows]
            offsets = None if offsets is None else offsets[rows]
        grouped = codes.unflatten(-1, (-1, self.group)).float() * scales.float()[..., None]
        if offsets is not None:
            grouped += offsets.float()[..., None]
        return grouped.flatten(-2).to(self.dtype)


Weight: TypeAlias = Tensor | GroupQuantized


def linear(rows: Tensor, weight: Weight, bias: Tensor | None = None) -> Tensor:
    """[..., in] × [out, in] → [..., out]."""
    return functional.linear(rows, weight.dequantized() if isinstance(weight, GroupQuantized) else weight, bias)


def embedding(token_ids: Tensor, weight: Weight) -> Tensor:
    """The rows `token_ids` of a matrix: [T] → [T, in]."""
    if isinstance(weight, GroupQuantized):
        return weight.dequantized(token_ids)
    return functional.embedding(token_ids, weight)


def concatenated(weights: Sequence[Weight]) -> Weight:
    """One above the other: matrices that are multiplied by the same rows become one. All are of one kind."""
    quantized = [weight for weight in weights if isinstance(weight, GroupQuantized)]
    if not quantized:
        return torch.cat([weight for weight in weights if isinstance(weight, Tensor)])
    first = quantized[0]
    if any((one.bits, one.group, one.offsets is None) != _kind(first) for one in quantized) or len(quantized) < len(
        weights
    ):
        raise ValueError("matrices that are quantized differently cannot become one")
    offsets = [one.offsets for one in quantized if one.offsets is not None]
    return GroupQuantized(
        torch.cat([one.codes for one in quantized]),
        torch.cat([one.scales for one in quantized]),
        torch.cat(offsets) if offsets else None,
        first.bits,
        first.group,
        first.dtype,
    )


def _kind(weight: GroupQuantized) -> tuple[int, int, bool]:
    return weight.bits, weight.group, weight.offsets is None
