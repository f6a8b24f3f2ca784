"""Quantized weights are within a step of the originals, and the stored format is the requested one."""

import gguf
import pytest
import torch
from gguf.quants import dequantize, quantize
from hypothesis import given, settings
from hypothesis import strategies as st

from runtimes.llm.model.matrix import GroupQuantized, WeightsName, held, quantized_4, quantized_8, with_columns
from runtimes.llm.weights.gguf_blocks import from_blocks

MLP, HEAD = "model.layers.0.mlp.up_proj.weight", "lm_head.weight"
matrices = st.builds(
    lambda rows, groups, scale, shift, seed: (
        torch.randn(rows, 32 * groups, generator=torch.Generator().manual_seed(seed)) * scale + shift
    ),
    rows=st.integers(1, 5),
    groups=st.integers(1, 4),
    scale=st.sampled_from([0.0, 1e-3, 0.05, 30.0]),
    shift=st.sampled_from([0.0, 0.01, -3.0]),
    seed=st.integers(0, 2**32),
)


def spread(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The greatest distance from 0 in each number's group, and the group's width."""
    groups = weight.unflatten(-1, (-1, 32))
    farthest, width = groups.abs().amax(-1), groups.amax(-1) - groups.amin(-1)
    return farthest.repeat_interleave(32, dim=1), width.repeat_interleave(32, dim=1)


@settings(max_examples=40)
@given(weight=matrices)
def test_eight_bits_are_off_by_half_a_step(weight: torch.Tensor) -> None:
    matrix = quantized_8(weight, torch.float32)
    step = spread(weight)[0] / 127
    # Half a step, and what float16 takes from a scale: 2^-11 of it, or half of its least number, 127 times.
    bound = 0.5 * step + step * 127 * 2**-11 + 127 * 2**-25
    assert bool(((matrix.dequantized() - weight).abs() <= bound * 1.001).all())
    assert (matrix.bits, matrix.offsets) == (8, None)


@settings(max_examples=40)
@given(weight=matrices)
def test_four_bits_are_better_than_sixteen_even_steps(weight: torch.Tensor) -> None:
    matrix = quantized_4(weight, torch.float32)
    farthest, width = spread(weight)
    ours = (matrix.dequantized() - weight).square().sum()
    even = torch.from_numpy(dequantize(quantize(weight.numpy(), Q4_1), Q4_1))
    theirs = (even - weight).square().sum()
    rounding = ((farthest + width) * 2**-10 + 2**-20).square().sum()
    assert float(ours) <= float(theirs) + float(rounding)
    assert -8 <= int(matrix.codes.min()) <= int(matrix.codes.max()) <= 7


Q4_1, Q8_0, Q6_K = (gguf.GGMLQuantizationType[name] for name in ("Q4_1", "Q8_0", "Q6_K"))


def test_four_bits_gain_by_the_fit() -> None:
    weight = torch.randn(64, 576, generator=torch.Generator().manual_seed(0))
    ours = (quantized_4(weight, torch.float32).dequantized() - weight).square().sum()
    even = torch.from_numpy(dequantize(quantize(weight.numpy(), Q4_1), Q4_1))
    assert float(ours) < 0.92 * float((even - weight).square().sum())


def test_large_matrices_are_quantized_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.randn(7, 64, generator=torch.Generator().manual_seed(0))
    whole = [quantized_4(weight, torch.float32), quantized_8(weight, torch.float32)]
    monkeypatch.setattr("runtimes.llm.model.matrix._NUMBERS_AT_ONCE", 150)
    parts = [quantized_4(weight, torch.float32), quantized_8(weight, torch.float32)]
    assert all(torch.equal(a.codes, b.codes) for a, b in zip(whole, parts, strict=True))
    assert all(torch.equal(a.dequantized(), b.dequantized()) for a, b in zip(whole, parts, strict=True))


def blocks(kind: gguf.GGMLQuantizationType) -> GroupQuantized:
    weight = torch.randn(4, 256, generator=torch.Generator().manual_seed(0))
    return from_blocks(quantize(weight.numpy(), kind), kind.name)


@pytest.mark.parametrize(
    ("how", "name", "kind", "bits"),
    [
        ("unquantized", MLP, Q4_1, None),
        ("auto", MLP, Q4_1, None),
        ("stored", MLP, Q4_1, 4),
        ("stored", HEAD, Q8_0, 8),
        ("int8", MLP, Q8_0, 8),
        ("int8", MLP, Q4_1, 8),
        ("int4", MLP, Q4_1, 4),
        ("int4", MLP, Q8_0, 4),
        ("int4", HEAD, Q4_1, 8),
    ],
)
def test_blocks_of_a_file_become_groups(
    how: WeightsName, name: str, kind: gguf.GGMLQuantizationType, bits: int | None
) -> None:
    stored = blocks(kind)
    weight_held = held(name, stored, how, torch.bfloat16)
    assert weight_held.dtype == torch.bfloat16
    assert (weight_held.bits if isinstance(weight_held, GroupQuantized) else None) == bits
    if isinstance(weight_held, GroupQuantized):
        assert weight_held.scales.dtype == torch.float16
        # The codes of the file, unless it had others.
        assert torch.equal(weight_held.codes, stored.codes) == (stored.bits == bits)


@pytest.mark.parametrize("how", ["int8", "int4", "stored"])
def test_weights_that_are_not_quantized(how: WeightsName) -> None:
    for name, weight in (("model.norm.weight", torch.ones(64)), (MLP, torch.ones(4, 48))):
        weight_held = held(name, weight, how, torch.bfloat16)
        assert isinstance(weight_held, torch.Tensor)
        assert weight_held.dtype == torch.bfloat16


def test_a_group_of_halves_of_two_others_is_no_group() -> None:
    """Its columns have the places of a whole group, and two scales."""
    matrix = quantized_4(torch.randn(3, 128, generator=torch.Generator().manual_seed(0)), torch.float32)
    columns = torch.cat([torch.arange(first, first + 16) for first in (0, 48, 32, 16)])
    moved = with_columns(matrix, columns)
    assert isinstance(moved, torch.Tensor)
    assert torch.equal(moved, matrix.dequantized()[:, columns])


@settings(max_examples=40)
@given(weight=matrices, size=st.sampled_from([1, 16, 32, 64]), bits=st.sampled_from([4, 8]), seed=st.integers(0, 99))
def test_columns_move_with_their_scales(weight: torch.Tensor, size: int, bits: int, seed: int) -> None:
    """Runs of columns in another order: codes stay codes if each run is whole groups."""
    count = weight.shape[1]
    runs = torch.arange(count).split(size)
    order = torch.randperm(len(runs), generator=torch.Generator().manual_seed(seed)).tolist()
    columns = torch.cat([runs[index] for index in order])
    matrix = (quantized_4 if bits == 4 else quantized_8)(weight, torch.float32)
    moved = with_columns(matrix, columns)
    numbers = moved.dequantized() if isinstance(moved, GroupQuantized) else moved
    assert torch.equal(numbers, matrix.dequantized()[:, columns])
    if count % size == 0 and size >= 32:
        assert isinstance(moved, GroupQuantized)
    assert torch.equal(with_columns(weight, columns), weight[:, columns])
