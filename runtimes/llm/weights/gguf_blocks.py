"""The blocks that quantized tensors of GGUF files are made of, as codes, scales and offsets.

A block is some numbers in a row of a matrix: packed integers, and the scales of the groups they fall into
(https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h has their layouts, n blocks one after the other here).
For every type, a weight is scale × code + offset, so no weight is quantized again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from runtimes.llm.model.matrix import GroupQuantized

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Codes = NDArray[np.int8]
_Unpacked = tuple[Codes, Floats, Floats | None]  # [n, numbers], [n, groups], [n, groups]

_SUPER = 256  # numbers in a block of the K types


@dataclass(frozen=True, slots=True)
class _Type:
    """`size` bytes of a block hold `numbers`, of which each `group` shares a scale, in codes of 4 or 8 bits."""

    numbers: int
    size: int
    group: int
    bits: Literal[4, 8]
    unpack: Callable[[Bytes], _Unpacked]


def is_blocks(kind: str) -> bool:
    """Whether tensors of that ggml type can be used as stored."""
    return kind in _TYPES


def from_blocks(rows: Bytes, kind: str) -> GroupQuantized:
    """A matrix from its rows' bytes [out, bytes]. Scales and offsets are float32, as exact as the file's."""
    layout = _TYPES[kind]
    codes, scales, offsets = layout.unpack(rows.reshape(-1, layout.size))
    return GroupQuantized(
        codes=_rows_of(codes, len(rows)),
        scales=_rows_of(scales, len(rows)),
        offsets=None if offsets is None else _rows_of(offsets, len(rows)),
        bits=layout.bits,
        group=layout.group,
        dtype=torch.float32,
    )


def _rows_of(parts: NDArray[Any], count: int) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(parts.reshape(count, -1)))


def _halves(data: Bytes) -> Floats:
    """float16 numbers, [n, 2 × count] bytes → [n, count]."""
    return np.ascontiguousarray(data).view(np.float16).astype(np.float32)


def _nibbles(data: Bytes, run: int) -> Codes:
    """The low halves of each `run` bytes, then the high ones: [n, bytes] → [n, 2 × bytes], 0 … 15."""
    runs = data.reshape(len(data), -1, run)
    codes = np.empty((len(data), runs.shape[1], 2, run), np.uint8)
    np.bitwise_and(runs, 15, out=codes[:, :, 0])
    np.right_shift(runs, 4, out=codes[:, :, 1])
    return codes.reshape(len(data), -1).view(np.int8)


def _shifted(data: Bytes, bits: int, run: int) -> Bytes:
    """The lowest `bits` of each `run` bytes, then the next ones: [n, bytes] → [n, bytes × 8 / bits]."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    parts = data.reshape(len(data), -1, 1, run) >> shifts & np.uint8((1 << bits) - 1)
    return parts.reshape(len(data), -1)


# ── blocks of 32 ──────────────────────────────────────────────────────────────────────────────────────


def _q8_0(blocks: Bytes) -> _Unpacked:
    return blocks[:, 2:].view(np.int8), _halves(blocks[:, :2]), None


def _q4_0(blocks: Bytes) -> _Unpacked:
    return _nibbles(blocks[:, 2:], 16) - np.int8(8), _halves(blocks[:, :2]), None


def _q4_1(blocks: Bytes) -> _Unpacked:
    scales, least = _halves(blocks[:, :2]), _halves(blocks[:, 2:4])
    return _nibbles(blocks[:, 4:], 16) - np.int8(8), scales, least + 8 * scales


def _q5_0(blocks: Bytes) -> _Unpacked:
    return _five_bits(blocks[:, 2:]) - np.int8(16), _halves(blocks[:, :2]), None


def _q5_1(blocks: Bytes) -> _Unpacked:
    return _five_bits(blocks[:, 4:]), _halves(blocks[:, :2]), _halves(blocks[:, 2:4])


def _five_bits(data: Bytes) -> Codes:
    fifth = np.unpackbits(data[:, :4], axis=-1, bitorder="little").view(np.int8)
    return _nibbles(data[:, 4:], 16) | fifth << np.int8(4)


# ── blocks of 256, whose scales are quantized too ─────────────────────────────────────────────────────


def _q2_k(blocks: Bytes) -> _Unpacked:
    scales, rest = blocks[:, :16], _halves(blocks[:, 80:84])
    codes = _shifted(blocks[:, 16:80], 2, 32).view(np.int8)
    return codes, rest[:, :1] * (scales & 15), -rest[:, 1:] * (scales >> 4)


def _q3_k(blocks: Bytes) -> _Unpacked:
    low, high = _shifted(blocks[:, 96:104], 4, 8), _shifted(blocks[:, 104:108], 2, 4)
    scales = (low | high << 4).view(np.int8) - np.int8(32)
    missing = 1 - _shifted(blocks[:, :32], 1, 32).view(np.int8)
    codes = _shifted(blocks[:, 32:96], 2, 32).view(np.int8) - missing * np.int8(4)
    return codes, _halves(blocks[:, 108:110]) * scales, None


def _q4_k(blocks: Bytes) -> _Unpacked:
    scales, least = _scales_and_minima(blocks)
    return _nibbles(blocks[:, 16:], 32) - np.int8(8), scales, least + 8 * scales


def _q5_k(blocks: Bytes) -> _Unpacked:
    scales, least = _scales_and_minima(blocks)
    fifth = _shifted(blocks[:, 16:48], 1, 32).view(np.int8)
    return _nibbles(blocks[:, 48:], 32) | fifth << np.int8(4), scales, least


def _scales_and_minima(blocks: Bytes) -> tuple[Floats, Floats]:
    """Eight of each in 6 bits: the first four whole, the upper two bits of the others above them."""
    first, second, low = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = np.concatenate([first & 63, low & 15 | first >> 2 & 48], axis=1)
    minima = np.concatenate([second & 63, low >> 4 | second >> 2 & 48], axis=1)
    units = _halves(blocks[:, :4])
    return units[:, :1] * scales, -units[:, 1:] * minima


def _q6_k(blocks: Bytes) -> _Unpacked:
    codes = _nibbles(blocks[:, :128], 64) | _shifted(blocks[:, 128:192], 2, 32).view(np.int8) << np.int8(4)
    return codes - np.int8(32), _halves(blocks[:, 208:]) * blocks[:, 192:208].view(np.int8), None


_TYPES = {
    "Q8_0": _Type(32, 34, 32, 8, _q8_0),
    "Q4_0": _Type(32, 18, 32, 4, _q4_0),
    "Q4_1": _Type(32, 20, 32, 4, _q4_1),
    "Q5_0": _Type(32, 22, 32, 8, _q5_0),
    "Q5_1": _Type(32, 24, 32, 8, _q5_1),
    "Q2_K": _Type(_SUPER, 84, 16, 4, _q2_k),
    "Q3_K": _Type(_SUPER, 110, 16, 4, _q3_k),
    "Q4_K": _Type(_SUPER, 144, 32, 4, _q4_k),
    "Q5_K": _Type(_SUPER, 176, 32, 8, _q5_k),
    "Q6_K": _Type(_SUPER, 210, 16, 8, _q6_k),
}
