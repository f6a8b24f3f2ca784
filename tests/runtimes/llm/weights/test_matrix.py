"""A quantized matrix computes the same as the dequantized matrix."""

from dataclasses import replace

import pytest
import torch

from runtimes.llm.model import matrix as weights
from runtimes.llm.model.matrix import GroupQuantized, Weight, concatenated, embedding, linear


def quantized(out: int, into: int, *, group: int = 16, offsets: bool = False, seed: int = 0) -> GroupQuantized:
    random = torch.Generator().manual_seed(seed)
    shape = (out, into // group)
    return GroupQuantized(
        torch.randint(-8, 8, (out, into), dtype=torch.int8, generator=random),
        torch.rand(shape, generator=random).half(),
        torch.randn(shape, generator=random).half() if offsets else None,
        4,
        group,
        torch.float32,
    )


def written_out(matrix: GroupQuantized) -> torch.Tensor:
    """Weight by weight."""
    whole = torch.empty(matrix.shape)
    for row in range(matrix.shape[0]):
        for column in range(matrix.shape[1]):
            part = column // matrix.group
            offset = 0.0 if matrix.offsets is None else float(matrix.offsets[row, part])
            whole[row, column] = float(matrix.scales[row, part]) * int(matrix.codes[row, column]) + offset
    return whole


@pytest.mark.parametrize("offsets", [False, True])
def test_a_product_and_a_row_are_those_of_the_matrix_written_out(offsets: bool) -> None:
    matrix = quantized(6, 32, offsets=offsets)
    whole, rows = written_out(matrix), torch.randn(3, 32)
    torch.testing.assert_close(linear(rows, matrix), rows @ whole.T)
    torch.testing.assert_close(embedding(torch.tensor([5, 0]), matrix), whole[[5, 0]])


@pytest.mark.parametrize("offsets", [False, True])
def test_two_become_one(offsets: bool) -> None:
    upper, lower = quantized(4, 32, offsets=offsets), quantized(2, 32, offsets=offsets, seed=1)
    whole = concatenated([upper, lower])
    assert isinstance(whole, GroupQuantized)
    assert torch.equal(whole.dequantized(), torch.cat([upper.dequantized(), lower.dequantized()]))


@pytest.mark.parametrize(
    "other",
    [
        quantized(2, 32, group=32, seed=2),
        quantized(2, 32, group=32, offsets=True, seed=3),
        replace(quantized(2, 32, seed=4), bits=8),
        torch.ones(2, 32),
    ],
    ids=["longer groups", "offsets too", "more bits", "not quantized"],
)
def test_weights_of_different_formats_are_joined_too(other: Weight) -> None:
    upper = quantized(4, 32)
    lower = other.dequantized() if isinstance(other, GroupQuantized) else other
    expected = torch.cat([upper.dequantized(), lower])
    whole = concatenated([upper, other])
    assert torch.equal(whole.dequantized() if isinstance(whole, GroupQuantized) else whole, expected)
    assert isinstance(whole, GroupQuantized) == isinstance(other, GroupQuantized)


def test_a_matrix_of_many_rows_is_written_out_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = quantized(7, 32, offsets=True)
    monkeypatch.setattr(weights, "_NUMBERS_AT_ONCE", 96)
    torch.testing.assert_close(matrix.dequantized(), written_out(matrix))
