"""How the quantized matrices of Hugging Face folders are stored, each as codes with scales and offsets.

A layout of integers becomes a `GroupQuantized` of the same numbers. Other numbers (FP8, NF4), and groups whose columns
are scattered (act-order), become a whole matrix: the engine's codes could not hold them without loss.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from runtimes.llm.model.matrix import GroupQuantized, Weight
from runtimes.llm.weights.tensor_files import TensorFiles

Settings = Mapping[str, Any]
"""A folder's quantization_config."""


@dataclass(frozen=True, slots=True)
class MatrixParts:
    """The tensors that a matrix is stored in, by the end of their names."""

    files: TensorFiles
    prefix: str

    def __call__(self, part: str) -> Tensor:
        return self.files.tensor(self.prefix + part)

    def __contains__(self, part: str) -> bool:
        return self.prefix + part in self.files

    def shape(self, part: str) -> tuple[int, ...]:
        return self.files.shape(self.prefix + part)


@dataclass(frozen=True, slots=True)
class MatrixLayout:
    """A matrix is stored so if it has the part `marker`; `main` is its largest. `codes`: it becomes a GroupQuantized.

    `shape` is that of the matrix, from the parts' shapes. Both functions raise errors of torch and of Python where the
    parts do not fit together.
    """

    main: str
    marker: str
    shape: Callable[[MatrixParts, Settings], tuple[int, ...]]
    weight: Callable[[MatrixParts, Settings], Weight]
    codes: bool = True


def _unpacked(words: Tensor, bits: int, count: int) -> Tensor:
    """The first `count` numbers of `bits` in each row of 32-bit words, the lowest bits first: uint8 [rows, count]."""
    data = words.contiguous().view(torch.uint8)
    if count > data.shape[1] * 8 // bits:
        raise ValueError(f"{data.shape[1] * 8 // bits} numbers are packed where {count} are needed")
    if bits in (2, 4):
        shifts = torch.arange(0, 8, bits, dtype=torch.uint8)
        data = ((data[..., None] >> shifts) & ((1 << bits) - 1)).flatten(-2)
    elif bits != 8:
        stream = ((data[..., None] >> torch.arange(8, dtype=torch.uint8)) & 1).flatten(-2)[:, : count * bits]
        data = (stream.unflatten(-1, (-1, bits)) << torch.arange(bits, dtype=torch.uint8)).sum(-1, dtype=torch.uint8)
    return data[:, :count]


def _grouped(codes: Tensor, scales: Tensor, offsets: Tensor | None, bits: int) -> GroupQuantized:
    """int8 codes [out, in], scales and offsets [out, groups] or [out, 1] or of one number."""
    out, columns = codes.shape
    scales = scales.float()
    if scales.numel() == 1:
        scales = scales.reshape(1, 1).expand(out, 1)
    scales = scales.reshape(out, -1)
    if not columns or columns % scales.shape[1]:
        raise ValueError(f"{columns} columns are not {scales.shape[1]} groups")
    if offsets is not None and (offsets.shape != scales.shape or not offsets.any()):
        if offsets.shape != scales.shape:
            raise ValueError(f"offsets {list(offsets.shape)} are not those of scales {list(scales.shape)}")
        offsets = None
    return GroupQuantized(
        codes.contiguous(),
        scales.contiguous(),
        offsets,
        4 if bits <= 4 else 8,
        columns // scales.shape[1],
        torch.float32,
    )


def _affine(codes: Tensor, scales: Tensor, zeros: Tensor | None, bits: int, order: Tensor | None = None) -> Weight:
    """scale × (code - zero) of unsigned codes [out, in]; `zeros` [out, groups], in the middle if None.

    `order` [in] is each column's group, if columns were quantized in the order of their importance.
    """
    middle = 1 << (bits - 1)
    signed = (codes ^ 0x80).view(torch.int8) if bits == 8 else codes.view(torch.int8) - middle
    offsets = None if zeros is None else scales.float() * (middle - zeros.float())
    matrix = _grouped(signed, scales, offsets, bits)
    if order is None:
        return matrix
    groups = matrix.scales.shape[1]
    if order.shape != codes.shape[1:] or not 0 <= int(order.min()) <= int(order.max()) < groups:
        raise ValueError(f"the columns' groups are not {groups} groups of {codes.shape[1]} columns")
    if torch.equal(order.long(), torch.arange(len(order)) // matrix.group):
        return matrix
    whole = signed * matrix.scales[:, order]
    return whole if matrix.offsets is None else whole.add_(matrix.offsets[:, order])


def is_scattered(parts: MatrixParts, settings: Settings) -> bool:
    """Whether the columns of a group are scattered, as the folder declares: the matrix becomes a whole one. GPTQ's
    files have `g_idx` otherwise too."""
    return "weight_g_idx" in parts or ("g_idx" in parts and bool(settings.get("desc_act")))


# ── GPTQ and AWQ: words along the input, or along the output ──────────────────────────────────────────


def _gptq(parts: MatrixParts, settings: Settings) -> Weight:
    words, scales = parts("qweight"), parts("scales").mT
    out, columns = _gptq_shape(parts, settings)
    bits = words.shape[0] * 32 // columns
    if bits not in (2, 4, 8):
        raise ValueError(f"{words.shape[0]} words of {columns} columns are not codes of 2, 4 or 8 bits")
    zeros = parts("qzeros")
    if settings.get("checkpoint_format", "gptq") == "gptq":  # its zeros are stored less 1, a word at a time
        zeros = zeros + sum(1 << shift for shift in range(0, 31, bits))
    order = parts("g_idx") if "g_idx" in parts else None
    codes = _unpacked(words.mT, bits, columns)
    return _affine(codes, scales, _unpacked(zeros, bits, out).mT, bits, order)


def _gptq_shape(parts: MatrixParts, settings: Settings) -> tuple[int, ...]:
    words, out = parts.shape("qweight")
    return out, parts.shape("g_idx")[0] if "g_idx" in parts else words * 32 // int(settings["bits"])


_AWQ_ORDER = torch.tensor([0, 4, 1, 5, 2, 6, 3, 7])
"""Where each of eight columns is in a word."""


def _awq(parts: MatrixParts, settings: Settings) -> Weight:
    def columns(words: Tensor) -> Tensor:
        return _unpacked(words, 4, 8 * words.shape[1]).unflatten(-1, (-1, 8))[..., _AWQ_ORDER].flatten(-2).mT

    return _affine(columns(parts("qweight")).contiguous(), parts("scales").mT, columns(parts("qzeros")), 4)


def _awq_shape(parts: MatrixParts, settings: Settings) -> tuple[int, ...]:
    columns, words = parts.shape("qweight")
    return 8 * words, columns


# ── compressed-tensors, and FP8 of any name ───────────────────────────────────────────────────────────


def _packed(parts: MatrixParts, settings: Settings) -> Weight:
    words, scales = parts("weight_packed"), parts("weight_scale")
    out, columns = _packed_shape(parts, settings)
    bits = words.shape[1] * 32 // columns
    if bits not in (2, 4, 8):
        raise ValueError(f"{words.shape[1]} words of {columns} columns are not codes of 2, 4 or 8 bits")
    zeros = None
    if "weight_zero_point" in parts:
        zeros = parts("weight_zero_point")
        zeros = zeros + (1 << bits - 1) if zeros.dtype == torch.int8 else _unpacked(zeros.mT, bits, out).mT
    order = parts("weight_g_idx") if "weight_g_idx" in parts else None
    return _affine(_unpacked(words, bits, columns), scales, zeros, bits, order)


def _packed_shape(parts: MatrixParts, settings: Settings) -> tuple[int, ...]:
    return tuple(int(length) for length in parts("weight_shape").tolist())


def _scaled(marker: str) -> Callable[[MatrixParts, Settings], Weight]:
    def weight(parts: MatrixParts, settings: Settings) -> Weight:
        numbers, scales = parts("weight"), parts(marker)
        if scales.dtype == torch.uint8:  # exponents of 2
            scales = (scales.float() - 127).exp2()
        if numbers.dtype == torch.int8:
            zeros = parts("weight_zero_point") if "weight_zero_point" in parts else None
            offsets = None if zeros is None else -scales.float() * zeros.float()
            return _grouped(numbers, scales, offsets, 8)
        if not numbers.dtype.is_floating_point or numbers.dtype.itemsize > 1:
            raise ValueError(f"numbers of {numbers.dtype} have scales")
        return _spread(scales.float(), numbers.shape, settings).mul_(numbers.float())

    return weight


def _spread(scales: Tensor, shape: tuple[int, ...], settings: Settings) -> Tensor:
    """A scale for each number of a matrix: of one for all, for a row, or for a block."""
    if scales.numel() == 1:
        return scales.reshape(1, 1).repeat(*shape)
    scales = scales.reshape(len(scales), -1)
    block = settings.get("weight_block_size") or _block_structure(settings) or (128, 128)
    for axis in (0, 1):
        if scales.shape[axis] == shape[axis]:
            continue
        size = shape[axis] if scales.shape[axis] == 1 else int(block[axis])
        if math.ceil(shape[axis] / size) != scales.shape[axis]:
            raise ValueError(f"scales {list(scales.shape)} are not those of {list(shape)} in blocks of {list(block)}")
        scales = scales.repeat_interleave(size, dim=axis)
    return scales[: shape[0], : shape[1]].contiguous()


def _block_structure(settings: Settings) -> list[int] | None:
    for group in settings.get("config_groups", {}).values():
        if size := (group.get("weights") or {}).get("block_structure"):
            return list(size)
    return None


def _same_shape(parts: MatrixParts, settings: Settings) -> tuple[int, ...]:
    return parts.shape("weight")


# ── bitsandbytes ──────────────────────────────────────────────────────────────────────────────────────


def _table(kind: str) -> MatrixLayout:
    """Four bits that are places in a table, the high ones of a byte first, and a scale for each block of numbers."""
    marker = f"weight.quant_state.bitsandbytes__{kind}"

    def state(parts: MatrixParts) -> dict[str, Any]:
        return dict(json.loads(bytes(parts(marker).tolist())))

    def shape(parts: MatrixParts, settings: Settings) -> tuple[int, ...]:
        return tuple(int(length) for length in state(parts)["shape"])

    def weight(parts: MatrixParts, settings: Settings) -> Weight:
        declared, count = state(parts), math.prod(shape(parts, settings))
        data = parts("weight").contiguous().view(torch.uint8).flatten()
        places = torch.stack([data >> 4, data & 15], dim=-1).flatten()
        if not 0 <= len(places) - count <= 1:
            raise ValueError(f"{len(places)} numbers are packed where {count} are needed")
        scales = parts("weight.absmax")
        if "weight.nested_absmax" in parts:
            outer = parts("weight.nested_absmax").repeat_interleave(int(declared["nested_blocksize"]))[: len(scales)]
            scales = parts("weight.nested_quant_map")[scales.int()] * outer + float(declared["nested_offset"])
        numbers = parts("weight.quant_map").index_select(0, places[:count].int())
        numbers *= scales.float().repeat_interleave(int(declared["blocksize"]))[:count]
        return numbers.to(_BITSANDBYTES_DTYPES[declared["dtype"]]).view(shape(parts, settings))

    return MatrixLayout("weight", marker, shape, weight, codes=False)


_BITSANDBYTES_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def _greatest(parts: MatrixParts, settings: Settings) -> Weight:
    """Rows of int8 whose greatest number would be 127."""
    return _grouped(parts("weight"), parts("SCB").float() / 127, None, 8)


# ── FP4 with exponents, and MLX ───────────────────────────────────────────────────────────────────────

_TWICE_FP4 = torch.tensor([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], dtype=torch.int8)


def _fp4(places: Tensor, exponents: Tensor) -> GroupQuantized:
    """Numbers of four bits [..., in] whose groups of 32 share a power of 2: as twice the number, which is whole."""
    group = places.shape[-1] // exponents.shape[-1]
    if places.shape[:-1] != exponents.shape[:-1] or group * exponents.shape[-1] != places.shape[-1]:
        raise ValueError(f"numbers {list(places.shape)} do not have exponents {list(exponents.shape)}")
    scales = torch.ldexp(torch.ones(exponents.shape), exponents.int() - 128)
    return GroupQuantized(_TWICE_FP4[places.int()], scales, None, 8, group, torch.float32)


def _mxfp4(parts: MatrixParts, settings: Settings) -> Weight:
    """Blocks [experts, out, groups, 16] with the low half of a byte first: [experts, out, in]."""
    blocks = parts("blocks")
    return _fp4(torch.stack([blocks & 15, blocks >> 4], dim=-1).flatten(-3), parts("scales"))


def _mxfp4_shape(parts: MatrixParts, settings: Settings) -> tuple[int, ...]:
    *rows, groups, size = parts.shape("blocks")
    return math.prod(rows), 2 * groups * size


def _mlx(parts: MatrixParts, settings: Settings) -> Weight:
    words, scales = parts("weight"), parts("scales")
    _, columns = _mlx_shape(parts, settings)
    bits = words.shape[1] * 32 // columns
    if words.shape[1] * 32 != columns * bits or not 2 <= bits <= 8:
        raise ValueError(f"{words.shape[1]} words of {columns} columns are not codes of 2 to 8 bits")
    codes = _unpacked(words, bits, columns)
    if scales.dtype == torch.uint8:
        return _fp4(codes, scales)
    offsets = parts("biases").float()
    if bits in (4, 8):  # codes of other sizes fit into signed ones as they are
        middle = 1 << (bits - 1)
        codes, offsets = codes ^ 0x80 if bits == 8 else codes - middle, offsets + middle * scales.float()
    return _grouped(codes.view(torch.int8), scales, offsets, bits)


def _mlx_shape(parts: MatrixParts, settings: Settings) -> tuple[int, ...]:
    own = settings.get(parts.prefix.removesuffix("."))
    size = int((own if isinstance(own, dict) else settings)["group_size"])
    out, groups = parts.shape("scales")
    return out, groups * size


_SCALED = tuple(
    MatrixLayout("weight", marker, _same_shape, _scaled(marker), codes=False)
    for marker in ("weight_scale_inv", "weight_scale")
)
LAYOUTS: Mapping[str, tuple[MatrixLayout, ...]] = {
    "gptq": (MatrixLayout("qweight", "qweight", _gptq_shape, _gptq),),
    "awq": (MatrixLayout("qweight", "qweight", _awq_shape, _awq),),
    "compressed-tensors": (MatrixLayout("weight_packed", "weight_packed", _packed_shape, _packed), *_SCALED),
    "fp8": _SCALED,
    "fbgemm_fp8": _SCALED,
    "bitsandbytes": (_table("nf4"), _table("fp4"), MatrixLayout("weight", "SCB", _same_shape, _greatest)),
    "mxfp4": (MatrixLayout("blocks", "blocks", _mxfp4_shape, _mxfp4),),
    "mlx": (MatrixLayout("weight", "scales", _mlx_shape, _mlx),),
}
"""By the quant_method of quantization_config; MLX's files name none."""
