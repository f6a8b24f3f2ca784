"""A weight matrix, whole or in groups of small integers, the two operations on it, and its codes.

GroupQuantized is the form of every weight-only format, of GGUF files and our own: along its rows a matrix is
cut into groups, each with a scale and perhaps an offset, and a weight is scale × code + offset.

Our own codes: the other factor of a product stays in the model's number format. Groups of 32 numbers along a row, as in
llama.cpp's files, so that one outlier affects its own group alone.
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


def with_columns(weight: Weight, columns: Tensor) -> Weight:
    """The given columns, in that order; codes stay codes where whole groups move."""
    if not isinstance(weight, GroupQuantized):
        return weight[:, columns]
    firsts = columns[:: weight.group]
    if len(columns) % weight.group or firsts.remainder(weight.group).any():
        return weight.dequantized()[:, columns]
    if columns.view(-1, weight.group).diff().ne(1).any():  # a group may be made of halves of two others
        return weight.dequantized()[:, columns]
    groups = firsts // weight.group
    offsets = None if weight.offsets is None else weight.offsets[:, groups]
    return replace(weight, codes=weight.codes[:, columns], scales=weight.scales[:, groups], offsets=offsets)


def rows_of(weight: Weight, part: slice) -> Weight:
    """Some neighbouring rows, in the same memory."""
    if not isinstance(weight, GroupQuantized):
        return weight[part]
    offsets = None if weight.offsets is None else weight.offsets[part]
    return replace(weight, codes=weight.codes[part], scales=weight.scales[part], offsets=offsets)


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


WeightsName = Literal["auto", "unquantized", "int8", "int4", "stored"]
GROUP = 32
# Every token uses both matrices, and a model whose other matrices have 4 bits loses accuracy with these in 4 bits.
_IN_8_BITS = ("model.embed_tokens.weight", "lm_head.weight")
_QUANTIZED_AT_ONCE = 1 << 19
_FITS = 2  # times that scale and offset are fitted to the codes: another gains 1 % of the error


def held(name: str, weight: Weight, how: WeightsName, dtype: torch.dtype) -> Weight:
    """The stored form of the tensor `name`, as `how` selects, to compute with in `dtype`.

    `stored` preserves codes of a file; `int8` and `int4` preserve those that are already as small, and quantize
    all other matrices whose rows are groups of 32. `auto` is `unquantized`.
    """
    if how == "stored" and isinstance(weight, GroupQuantized):
        return _halved(weight, dtype)
    if how in ("int8", "int4") and len(weight.shape) == 2:
        bits = 4 if how == "int4" and name not in _IN_8_BITS else 8
        if isinstance(weight, GroupQuantized) and weight.bits == bits:
            return _halved(weight, dtype)
        if weight.shape[1] % GROUP == 0:
            plain = unquantized(weight)
            return quantized_4(plain, dtype) if bits == 4 else quantized_8(plain, dtype)
    return unquantized(weight).to(dtype)


def held_bytes(shape: tuple[int, ...], how: WeightsName, dtype: torch.dtype) -> int:
    """The bytes of a tensor of `shape` as `held` stores it."""
    small = how in ("int8", "int4", "stored") and len(shape) > 1 and shape[-1] % GROUP == 0
    # A byte a code, and a scale and an offset a group.
    bytes_of_32 = GROUP + 4 if small else GROUP * int(dtype.itemsize)
    return math.prod(shape) * bytes_of_32 // GROUP


def quantized_8(weight: Tensor, dtype: torch.dtype) -> GroupQuantized:
    """The greatest of a group is 127 or -127, 0 is 0."""
    codes = torch.empty(weight.shape, dtype=torch.int8)
    scales = torch.empty(_groups(weight), dtype=torch.float16)
    for part in _parts(weight):
        groups = weight[part].float().unflatten(-1, (-1, GROUP))
        scales[part] = groups.abs().amax(-1) / 127
        steps = groups * _inverse(scales[part].float())[..., None]
        codes[part] = steps.round_().clamp_(-127, 127).flatten(-2)
    return GroupQuantized(codes, scales, None, 8, GROUP, dtype)


def quantized_4(weight: Tensor, dtype: torch.dtype) -> GroupQuantized:
    """Sixteen steps from the least of a group to its greatest, then moved to where the squares of the errors are least:
    codes and the line through them by turns, as k-means does it."""
    codes = torch.empty(weight.shape, dtype=torch.int8)
    scales, offsets = (torch.empty(_groups(weight), dtype=torch.float16) for _ in range(2))
    for part in _parts(weight):
        groups = weight[part].float().unflatten(-1, (-1, GROUP))
        scales[part], offsets[part] = _line(groups)
        codes[part] = _nearest(groups, scales[part].float(), offsets[part].float()).flatten(-2)
    return GroupQuantized(codes, scales, offsets, 4, GROUP, dtype)


def _line(groups: Tensor) -> tuple[Tensor, Tensor]:
    """Scale and offset of each group, [rows, groups, 32] → twice [rows, groups]."""
    least, greatest = torch.aminmax(groups, dim=-1)
    scale = (greatest - least) / 15
    offset = least + 8 * scale
    mean = groups.mean(-1)
    for _ in range(_FITS):
        codes = _nearest(groups, scale, offset)
        middle = codes.mean(-1)
        spread = torch.linalg.vecdot(codes, codes) / GROUP - middle * middle
        together = torch.linalg.vecdot(codes, groups) / GROUP - middle * mean
        scale = torch.where(spread > 0, together / spread, scale)
        offset = mean - scale * middle
    return scale, offset


def _nearest(groups: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
    inverse = _inverse(scale)
    return torch.addcmul(-(offset * inverse)[..., None], groups, inverse[..., None]).round_().clamp_(-8, 7)


def _inverse(scale: Tensor) -> Tensor:
    return torch.where(scale == 0, 0.0, 1 / scale)


def _groups(weight: Tensor) -> tuple[int, int]:
    return weight.shape[0], weight.shape[1] // GROUP


def _parts(weight: Tensor) -> list[slice]:
    """Some rows at a time, so that intermediate tensors stay small."""
    count = max(_QUANTIZED_AT_ONCE // weight.shape[1], 1)
    return [slice(first, first + count) for first in range(0, len(weight), count)]


def unquantized(weight: Weight) -> Tensor:
    """All its numbers."""
    return weight.dequantized() if isinstance(weight, GroupQuantized) else weight


def _halved(weight: GroupQuantized, dtype: torch.dtype) -> Weight:
    """Scales in float16: some scales of a file's super-blocks have more bits. All numbers, if float16 cannot hold the
    scales."""
    scales, offsets = weight.scales.half(), None if weight.offsets is None else weight.offsets.half()
    if not all(bool(one.isfinite().all()) for one in (scales, offsets) if one is not None):
        return weight.dequantized().to(dtype)
    return replace(weight, scales=scales, offsets=offsets, dtype=dtype)
