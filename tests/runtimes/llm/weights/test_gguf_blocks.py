"""Blocks of GGUF files, read unchanged, hold the numbers that llama.cpp's own package reads in them."""

import numpy as np
import pytest
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from runtimes.llm.model.matrix import GroupQuantized
from runtimes.llm.weights.gguf_blocks import from_blocks, is_blocks

# The offsets of float16 numbers in a block; all other bytes are arbitrary.
FLOATS = {
    "Q8_0": (0,), "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2),
    "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,),
}  # fmt: skip
LARGEST = {4: (-8, 7), 8: (-128, 127)}


def random_rows(kind: str, out: int, blocks: int, scale: float, seed: int) -> NDArray[np.uint8]:
    """[out, bytes] of any bits, with scales around `scale`."""
    random = np.random.default_rng(seed)
    size = GGML_QUANT_SIZES[GGMLQuantizationType[kind]][1]
    rows = random.integers(0, 256, (out * blocks, size), dtype=np.uint8)
    for place in FLOATS[kind]:
        numbers = random.normal(0, scale, (len(rows), 1)).astype(np.float16)
        rows[:, place : place + 2] = numbers.view(np.uint8)
    return rows.reshape(out, -1)


def halved(matrix: GroupQuantized) -> GroupQuantized:
    offsets = None if matrix.offsets is None else matrix.offsets.half()
    return GroupQuantized(matrix.codes, matrix.scales.half(), offsets, matrix.bits, matrix.group, torch.float32)


@pytest.mark.parametrize("kind", FLOATS)
@settings(max_examples=15)
@given(
    out=st.integers(1, 3),
    blocks=st.integers(1, 3),
    scale=st.sampled_from([1e-6, 1e-3, 0.05, 8.0]),
    seed=st.integers(0, 2**32),
)
def test_they_are_the_same_numbers(kind: str, out: int, blocks: int, scale: float, seed: int) -> None:
    rows = random_rows(kind, out, blocks, scale, seed)
    expected = torch.from_numpy(dequantize(rows, GGMLQuantizationType[kind]))
    matrix = from_blocks(rows, kind)
    low, high = LARGEST[matrix.bits]
    assert low <= int(matrix.codes.min()) <= int(matrix.codes.max()) <= high
    assert tuple(matrix.scales.shape) == (out, expected.shape[1] // matrix.group)
    largest = float(expected.abs().max())
    torch.testing.assert_close(matrix.dequantized(), expected, atol=1e-6 * largest, rtol=1e-6)
    # The error of a float16 scale or offset is at most 2^-11 of itself, or half of float16's least step.
    codes = matrix.codes.float().abs()
    scales = matrix.scales.abs().repeat_interleave(matrix.group, dim=1) * codes
    offsets = 0 if matrix.offsets is None else matrix.offsets.abs().repeat_interleave(matrix.group, dim=1)
    bound = (scales + offsets) * 2**-11 + 2**-25 * (1 + codes) + 1e-6 * largest
    assert bool(((halved(matrix).dequantized() - expected).abs() <= bound).all())


def test_other_types_are_not_taken_as_they_are() -> None:
    assert is_blocks("Q4_K")
    assert not is_blocks("IQ4_XS")
    assert not is_blocks("F16")
