"""Weights in few bits: the quantized matrices, and how their codes are computed.

Weight-only: the other factor of a product stays in the model's number format. Groups of 32 numbers along a row, as in
llama.cpp's files, so that one outlier affects its own group alone.
"""

import math
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from runtimes.llm.model.matrix import GroupQuantized, Weight

WeightsName = Literal["auto", "unquantized", "int8", "int4", "stored"]
GROUP = 32
# Every token uses both matrices, and a model whose other matrices have 4 bits loses accuracy with these in 4 bits.
_IN_8_BITS = ("model.embed_tokens.weight", "lm_head.weight")
_NUMBERS_AT_ONCE = 1 << 19
_FITS = 2  # times that scale and offset are fitted to the codes: another gains 1 % of the error


def held(name: str, weight: Weight, how: WeightsName, dtype: torch.dtype) -> Weight:
    """The stored form of the tensor `name`, as `how` selects, to compute with in `dtype`.

    `stored` preserves blocks of a GGUF file; `int8` and `int4` preserve those that are already as small, and quantize
    all other matrices whose rows are groups of 32. `auto` is `unquantized`.
    """
    if how == "stored" and isinstance(weight, GroupQuantized):
        return _halved(weight, dtype)
    if how in ("int8", "int4") and len(weight.shape) == 2:
        bits = 4 if how == "int4" and name not in _IN_8_BITS else 8
        if isinstance(weight, GroupQuantized) and weight.bits == bits:
            return _halved(weight, dtype)
        if weight.shape[1] % GROUP == 0:
            plain = _unquantized(weight)
            return quantized_4(plain, dtype) if bits == 4 else quantized_8(plain, dtype)
    return _unquantized(weight).to(dtype)


def held_bytes(shape: tuple[int, ...], how: WeightsName, dtype: torch.dtype) -> int:
    """The bytes of a tensor of `shape` as `held` stores it."""
    small = how in ("int8", "int4", "stored") and len(shape) == 2 and shape[1] % GROUP == 0
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
    count = max(_NUMBERS_AT_ONCE // weight.shape[1], 1)
    return [slice(first, first + count) for first in range(0, len(weight), count)]


def _unquantized(weight: Weight) -> Tensor:
    return weight.dequantized() if isinstance(weight, GroupQuantized) else weight


def _halved(weight: GroupQuantized, dtype: torch.dtype) -> GroupQuantized:
    """Scales in float16: some scales of a file's super-blocks have more bits."""
    offsets = None if weight.offsets is None else weight.offsets.half()
    return replace(weight, scales=weight.scales.half(), offsets=offsets, dtype=dtype)
