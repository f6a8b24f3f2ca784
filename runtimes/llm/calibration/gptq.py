"""GPTQ (Frantar et al. 2022, https://arxiv.org/abs/2210.17323): a matrix is rounded a column at a time.

What the rounding of a column changes in the products is made up for by the columns that are not rounded yet. The
inverse of the inputs' Gram matrix tells how, and its Cholesky factor all of it at once (section 3.3 there).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from runtimes.llm.weights.quantized_writer import Bits, Codes, nearest_scale, numbers_of, quantized, rounded_to

_AT_ONCE = 128
"""Columns of a block; the columns behind it are corrected once for all of them. All sizes of groups divide it."""
_DAMPINGS = (0.01, 0.1, 1.0)
"""Shares of the diagonal's mean that are added to it, the next one where the matrix cannot be inverted."""


def gptq(weight: Tensor, gram: Tensor, bits: Bits, group: int, *, act_order: bool) -> Codes:
    """Codes of `weight` [out, in] for inputs of `gram` [in, in], no worse for them in any row than the nearest codes.

    With `act_order` the columns of the largest inputs are rounded first, when all others can make up for it. Groups
    stay neighbouring columns, so that their scales are chosen before.
    """
    nearest = quantized(weight, bits, group)
    order = gram.diagonal().argsort(descending=True, stable=True) if act_order else torch.arange(len(gram))
    factor = _factor(gram[order][:, order])
    if factor is None:
        return nearest
    scales = nearest[1] if act_order else None
    codes = _column_by_column(weight, factor, order.tolist(), scales, bits, group)
    better = output_errors(weight, codes, gram, bits) < output_errors(weight, nearest, gram, bits)
    return torch.where(better[:, None], codes[0], nearest[0]), torch.where(better[:, None], codes[1], nearest[1])


def output_errors(weight: Tensor, codes: Codes, gram: Tensor, bits: Bits) -> Tensor:
    """The squared errors of the products, of each row: [out]."""
    missing = numbers_of(codes, bits) - weight.float()
    return (missing @ gram * missing).sum(1)


def _factor(gram: Tensor) -> Tensor | None:
    """U of the inverse UᵀU; None if there is no inverse."""
    mean = float(gram.diagonal().mean())
    if not 0 < mean < torch.inf:
        return None
    for share in _DAMPINGS:
        damped = gram.clone()
        damped.diagonal().add_(share * mean)
        lower, failed = torch.linalg.cholesky_ex(damped)
        if not failed:
            upper, failed = torch.linalg.cholesky_ex(torch.cholesky_inverse(lower), upper=True)
            if not failed and bool(upper.isfinite().all()):
                return upper
    return None


def _column_by_column(
    weight: Tensor, factor: Tensor, order: Sequence[int], chosen: Tensor | None, bits: Bits, group: int
) -> Codes:
    """`factor` is of the columns in their `order`. Without `chosen` scales, a group's are those of its corrected
    numbers."""
    left = weight.float()[:, list(order)]
    columns = left.shape[1]
    codes = torch.empty(weight.shape, dtype=torch.uint8)
    scales = torch.empty(len(left), columns // group, dtype=weight.dtype) if chosen is None else chosen
    for first in range(0, columns, _AT_ONCE):
        last = min(first + _AT_ONCE, columns)
        block, errors = left[:, first:last], torch.empty(len(left), last - first)
        for at, column in enumerate(range(first, last)):
            place = order[column] // group
            if chosen is None and column % group == 0:
                scales[:, place] = nearest_scale(block[:, at : at + group], bits, weight.dtype)
            scale = scales[:, place].float()
            code = rounded_to(block[:, at, None], scale, bits)[:, 0]
            errors[:, at] = (block[:, at] - code * scale) / factor[column, column]
            block[:, at:] -= errors[:, at, None] * factor[column, column:last]
            codes[:, order[column]] = (code + (1 << bits - 1)).to(torch.uint8)
        left[:, last:] -= errors @ factor[first:last, last:]
    return codes, scales
