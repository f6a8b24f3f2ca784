"""Quantized matrices as the formats' own specifications store them, written one number at a time."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

FP4 = (0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6)
# QLoRA's table (Dettmers et al. 2023, appendix E).
NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
Drawn = tuple[dict[str, Tensor], Tensor]
"""The parts of one matrix by the ends of their names, and its numbers in float32."""


def words(rows: Tensor, bits: int, borrow: bool = False) -> Tensor:
    """Each row of whole numbers as a stream of bits, the lowest first, in int32; with `borrow` 1 is subtracted from
    each number, a word at a time."""
    packed = []
    for row in rows.tolist():
        stream = sum(int(number) << bits * place for place, number in enumerate(row))
        values = [stream >> shift & 0xFFFFFFFF for shift in range(0, len(row) * bits, 32)]
        if borrow:
            ones = sum(1 << shift for shift in range(0, 32, bits))
            values = [(value - ones) & 0xFFFFFFFF for value in values]
        packed.append([value - (1 << 32) if value >> 31 else value for value in values])
    return torch.tensor(packed, dtype=torch.int32)


@dataclass(frozen=True, slots=True)
class Codes:
    """Random whole numbers of `bits` [out, in], with scales and zeros [out, groups], and each column's group."""

    random: torch.Generator
    shape: tuple[int, int]
    bits: int
    groups: int
    symmetric: bool = False
    shuffled: bool = False

    def draw(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        out, columns = self.shape
        codes = torch.randint(0, 1 << self.bits, self.shape, generator=self.random)
        scales = (torch.rand(out, self.groups, generator=self.random) + 0.5) / (1 << self.bits)
        zeros = torch.randint(0, 1 << self.bits, scales.shape, generator=self.random)
        if self.symmetric:
            zeros.fill_(1 << self.bits - 1)
        order = torch.arange(columns) // (columns // self.groups)
        if self.shuffled:
            order = order[torch.randperm(columns, generator=self.random)]
        return codes, scales.half().float(), zeros, order


def numbers(codes: Tensor, scales: Tensor, zeros: Tensor, order: Tensor) -> Tensor:
    return (codes - zeros[:, order]) * scales[:, order]


def gptq(how: Codes, version: str = "gptq", with_order: bool = True) -> Drawn:
    codes, scales, zeros, order = how.draw()
    parts = {
        "qweight": words(codes, how.bits).T.contiguous(),
        "qzeros": words(zeros.T, how.bits, borrow=version == "gptq"),
        "scales": scales.T.contiguous().half(),
    }
    if with_order:
        parts["g_idx"] = order.int()
    return parts, numbers(codes, scales, zeros, order)


def awq(how: Codes) -> Drawn:
    codes, scales, zeros, order = how.draw()

    def packed(rows: Tensor) -> Tensor:
        return words(rows.unflatten(-1, (-1, 8))[..., [0, 2, 4, 6, 1, 3, 5, 7]].flatten(-2), 4)

    parts = {"qweight": packed(codes.T), "qzeros": packed(zeros.T), "scales": scales.T.contiguous().half()}
    return parts, numbers(codes, scales, zeros, order)


def packed(how: Codes) -> Drawn:
    codes, scales, zeros, order = how.draw()
    parts = {
        "weight_packed": words(codes, how.bits),
        "weight_scale": scales.bfloat16(),
        "weight_shape": torch.tensor(how.shape),
    }
    if not how.symmetric:
        parts["weight_zero_point"] = words(zeros.T, how.bits).T.contiguous()
    if how.shuffled:
        parts["weight_g_idx"] = order.int()
    return parts, numbers(codes, scales.bfloat16().float(), zeros, order)


def int8(how: Codes) -> Drawn:
    codes, scales, zeros, order = how.draw()
    parts = {"weight": (codes - 128).to(torch.int8), "weight_scale": scales}
    if not how.symmetric:
        parts["weight_zero_point"] = (zeros - 128).to(torch.int8)
    return parts, numbers(codes, scales, zeros, order)


def fp8(
    random: torch.Generator, shape: tuple[int, int], block: tuple[int, int], name: str = "weight_scale_inv"
) -> Drawn:
    """`block` (0, 0) is one scale for all, 0 a whole row or column."""
    values = torch.randn(shape, generator=random).to(torch.float8_e4m3fn)
    grid = tuple(math.ceil(length / (size or length)) for length, size in zip(shape, block, strict=True))
    scales = torch.rand(grid, generator=random) + 0.01
    expected = values.float()
    for row in range(shape[0]):
        for column in range(shape[1]):
            expected[row, column] *= scales[row // (block[0] or shape[0]), column // (block[1] or shape[1])]
    return {"weight": values, name: scales if block != (0, 0) else scales.reshape(())}, expected


def nf4(random: torch.Generator, shape: tuple[int, int], block: int, nested: bool, dtype: torch.dtype) -> Drawn:
    count = math.prod(shape)
    places = torch.randint(0, 16, (count,), generator=random)
    table, scales = torch.tensor(NF4), torch.rand(math.ceil(count / block), generator=random)
    title = str(dtype).removeprefix("torch.")
    state: dict[str, Any] = {"quant_type": "nf4", "blocksize": block, "dtype": title, "shape": shape}
    parts = {"weight": (places[0::2] << 4 | places[1::2]).to(torch.uint8)[:, None], "weight.quant_map": table}
    if nested:
        inner = torch.randint(0, 256, scales.shape, generator=random)
        outer, of_inner = torch.rand(math.ceil(len(scales) / 4), generator=random), torch.linspace(-1, 1, 256)
        scales = torch.stack([of_inner[place] * outer[at // 4] + 0.5 for at, place in enumerate(inner)])
        parts |= {
            "weight.nested_absmax": outer,
            "weight.nested_quant_map": of_inner,
            "weight.absmax": inner.to(torch.uint8),
        }
        state |= {"nested_blocksize": 4, "nested_dtype": "float32", "nested_offset": 0.5}
    else:
        parts["weight.absmax"] = scales
    parts["weight.quant_state.bitsandbytes__nf4"] = torch.tensor(list(json.dumps(state).encode()), dtype=torch.uint8)
    expected = torch.stack([table[place] * scales[at // block] for at, place in enumerate(places)])
    return parts, expected.to(dtype).view(shape)


def rows_of_int8(random: torch.Generator, shape: tuple[int, int]) -> Drawn:
    codes, greatest = torch.randint(-127, 128, shape, generator=random), torch.rand(shape[0], generator=random)
    return {"weight": codes.to(torch.int8), "SCB": greatest}, codes * (greatest / 127)[:, None]


def mlx(how: Codes) -> Drawn:
    codes, scales, zeros, order = how.draw()
    biases = (-scales * zeros).half()
    parts = {"weight": words(codes, how.bits).view(torch.uint32), "scales": scales.half(), "biases": biases}
    return parts, codes * scales[:, order] + biases.float()[:, order]


def fp4(random: torch.Generator, shape: tuple[int, int], *, blocks: bool) -> Drawn:
    """In the layout of gpt-oss (`blocks`), or in MLX's."""
    places = torch.randint(0, 16, shape, generator=random)
    exponents = torch.randint(110, 128, (shape[0], shape[1] // 32), generator=random)
    expected = torch.tensor(FP4)[places] * 2.0 ** (exponents - 127).repeat_interleave(32, dim=1)
    if not blocks:
        return {"weight": words(places, 4).view(torch.uint32), "scales": exponents.to(torch.uint8)}, expected
    low, high = places[:, 0::2], places[:, 1::2]
    return {
        "blocks": (low | high << 4).to(torch.uint8).unflatten(-1, (-1, 16)),
        "scales": exponents.to(torch.uint8),
    }, expected


Draw = Callable[[torch.Generator, tuple[int, int]], Drawn]


def _of(layout: Callable[..., Drawn], bits: int, group: int = 0, *arguments: Any, **how: bool) -> Draw:
    """`group` columns share a scale; 0 is a whole row."""
    return lambda random, shape: layout(Codes(random, shape, bits, shape[1] // (group or shape[1]), **how), *arguments)


def _fp8(rows: int, columns: int, name: str = "weight_scale") -> Draw:
    return lambda random, shape: fp8(random, shape, (rows, columns), name)


def _nf4(block: int, nested: bool, dtype: torch.dtype) -> Draw:
    return lambda random, shape: nf4(random, shape, block, nested, dtype)


def _config(method: str, **options: Any) -> Mapping[str, Any]:
    return {"quant_method": method, **options}


_BLOCKS = {"config_groups": {"g": {"weights": {"block_structure": [16, 32]}}}}
LAYOUTS: Mapping[str, tuple[Mapping[str, Any], Draw]] = {
    "gptq": (_config("gptq", bits=4), _of(gptq, 4, 32)),
    "gptq-symmetric": (_config("gptq", bits=4), _of(gptq, 4, 32, "gptq", False, symmetric=True)),
    "gptq-order": (_config("gptq", bits=4, desc_act=True), _of(gptq, 4, 32, shuffled=True)),
    "gptq-8": (_config("gptq", bits=8), _of(gptq, 8, 0, "gptq", False)),
    "gptq-2": (_config("gptq", bits=2), _of(gptq, 2, 16)),
    "gptq-v2": (_config("gptq", bits=4, checkpoint_format="gptq_v2"), _of(gptq, 4, 64, "gptq_v2")),
    "awq": (_config("awq", bits=4, version="gemm"), _of(awq, 4, 32)),
    "packed": (_config("compressed-tensors", format="pack-quantized"), _of(packed, 4, 32, symmetric=True)),
    "packed-zeros": (_config("compressed-tensors"), _of(packed, 4, 32)),
    "packed-order": (_config("compressed-tensors"), _of(packed, 8, 32, shuffled=True)),
    "int8": (_config("compressed-tensors", format="int-quantized"), _of(int8, 8, symmetric=True)),
    "int8-zeros": (_config("compressed-tensors"), _of(int8, 8, 32)),
    "float": (_config("compressed-tensors", format="naive-quantized"), _fp8(1, 0)),
    "float-block": (_config("compressed-tensors", **_BLOCKS), _fp8(16, 32)),
    "fp8": (_config("fp8", weight_block_size=[24, 20]), _fp8(24, 20, "weight_scale_inv")),
    "fp8-one": (_config("fp8", weight_block_size=None), _fp8(0, 0, "weight_scale_inv")),
    "fbgemm": (_config("fbgemm_fp8"), _fp8(1, 0)),
    "nf4": (_config("bitsandbytes"), _nf4(64, False, torch.float32)),
    "nf4-nested": (_config("bitsandbytes"), _nf4(32, True, torch.bfloat16)),
    "bnb-int8": (_config("bitsandbytes"), rows_of_int8),
    "mlx": ({"bits": 4, "group_size": 32}, _of(mlx, 4, 32)),
    "mlx-8": ({"bits": 8, "group_size": 64}, _of(mlx, 8, 64)),
    "mlx-3": ({"bits": 3, "group_size": 32}, _of(mlx, 3, 32)),
    "mlx-6": ({"bits": 6, "group_size": 32}, _of(mlx, 6, 32)),
    "mlx-fp4": ({"bits": 4, "group_size": 32, "mode": "mxfp4"}, lambda random, shape: fp4(random, shape, blocks=False)),
}
"""quantization_config and a random matrix of every layout, by the layout's name."""
