"""GPTQ's codes are those of its equations, and never worse on the texts than the nearest codes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from runtimes.llm.calibration.gptq import gptq, output_errors
from runtimes.llm.weights.quantized_writer import Bits, nearest_scale, numbers_of, quantized, rounded_to


def rows_of(seed: int, count: int, columns: int, rank: int) -> Tensor:
    """Inputs that depend on each other: of `rank` directions, and some noise."""
    random = torch.Generator().manual_seed(seed)
    directions = torch.randn(rank, columns, generator=random)
    return torch.randn(count, rank, generator=random) @ directions + 0.1 * torch.randn(count, columns, generator=random)


def weight_of(seed: int, out: int, columns: int) -> Tensor:
    return torch.randn(out, columns, generator=torch.Generator().manual_seed(seed + 1))


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    out=st.integers(1, 5),
    groups=st.integers(1, 6),
    count=st.integers(1, 100),
    scale=st.sampled_from([0.0, 1e-6, 1.0, 1e4]),
    dead=st.integers(0, 32),
    bits=st.sampled_from([4, 8]),
    act_order=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_no_row_of_a_matrix_is_worse_than_with_the_nearest_codes(
    seed: int, out: int, groups: int, count: int, scale: float, dead: int, bits: Bits, act_order: bool,
    dtype: torch.dtype,
) -> None:  # fmt: skip
    columns = 32 * groups
    rows, weight = rows_of(seed, count, columns, 4) * scale, weight_of(seed, out, columns).to(dtype)
    rows[:, :dead] = 0
    codes = gptq(weight, rows.t() @ rows, bits, 32, act_order=act_order)
    assert (codes[0].dtype, codes[1].dtype) == (torch.uint8, dtype)
    assert int(codes[0].max()) < 1 << bits
    numbers, nearest = numbers_of(codes, bits), numbers_of(quantized(weight, bits, 32), bits)
    errors = [((one - weight.float()) @ rows.t()).square().sum(1) for one in (numbers, nearest)]
    # The sum over rows is rounded otherwise than the product with their Gram matrix.
    assert bool((errors[0] <= errors[1] * 1.01 + 1e-5 * scale**2 * count).all())


@pytest.mark.parametrize("act_order", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
def test_products_gain_much_where_inputs_depend_on_each_other(bits: Bits, act_order: bool) -> None:
    rows, weight = rows_of(0, 800, 256, 32), weight_of(0, 32, 256)
    gram = rows.t() @ rows
    ours = output_errors(weight, gptq(weight, gram, bits, 64, act_order=act_order), gram, bits)
    assert float(ours.sum()) < 0.5 * float(output_errors(weight, quantized(weight, bits, 64), gram, bits).sum())


@pytest.mark.parametrize("act_order", [False, True])
def test_it_is_the_column_by_column_method_of_the_paper(act_order: bool) -> None:
    """Equations 2 and 3: the inverse itself, from which a column is eliminated after its rounding, in double."""
    rows, weight = rows_of(3, 400, 160, 24), weight_of(3, 4, 160)
    gram = rows.t() @ rows
    codes = gptq(weight, gram, 4, 32, act_order=act_order)
    nearest = quantized(weight, 4, 32)
    left = weight.double()
    inverse = (gram + 0.01 * gram.diagonal().mean() * torch.eye(160)).double().inverse()
    order = sorted(range(160), key=lambda column: -float(gram[column, column])) if act_order else list(range(160))
    expected, scales = torch.zeros_like(left), nearest[1].clone()
    for column in order:
        if not act_order and column % 32 == 0:
            scales[:, column // 32] = nearest_scale(left[:, column : column + 32].float(), 4, torch.float32)
        scale = scales[:, column // 32]
        expected[:, column] = rounded_to(left[:, column, None].float(), scale, 4)[:, 0].double() * scale
        error = (left[:, column] - expected[:, column]) / inverse[column, column]
        left = left - error[:, None] * inverse[column]
        inverse = inverse - torch.outer(inverse[:, column], inverse[column]) / inverse[column, column]
    # A number in the middle between two codes falls to either, and moves those behind it.
    same = (numbers_of(codes, 4) - expected.float()).abs() < 1e-4
    assert float(same.double().mean()) > 0.98


def test_inputs_that_are_nothing_leave_the_nearest_codes() -> None:
    weight = weight_of(0, 4, 64)
    for gram in (torch.zeros(64, 64), torch.full((64, 64), torch.nan)):
        codes, nearest = gptq(weight, gram, 4, 32, act_order=True), quantized(weight, 4, 32)
        assert torch.equal(codes[0], nearest[0])
        assert torch.equal(codes[1], nearest[1])
