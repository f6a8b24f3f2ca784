"""The tokens that `top_k`, `top_p` and `min_p` leave to be sampled.

All three leave the likeliest tokens, so the first few of the vocabulary nearly always suffice. They are selected
without sorting the vocabulary: each part of it with one of the n likeliest tokens is one of the n parts with the
likeliest maximum.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from runtimes.llm.engine.sampling_params import SamplingParams

PART = 64
"""Tokens of one part of the vocabulary."""


class TruncationLimits(NamedTuple):
    """A row each, [rows, 1]. A parameter without effect is infinite, or 0 for `min_p`."""

    top_k: Tensor
    top_p: Tensor
    min_p: Tensor

    @classmethod
    def of(cls, params: Sequence[SamplingParams], device: torch.device) -> "TruncationLimits":
        bounds = [[one.top_k or torch.inf, one.top_p if one.top_p < 1 else torch.inf, one.min_p] for one in params]
        return cls(*torch.tensor(bounds, dtype=torch.float64, device=device)[:, :, None].unbind(1))

    def take(self, rows: Tensor) -> "TruncationLimits":
        return TruncationLimits(self.top_k[rows], self.top_p[rows], self.min_p[rows])


def parts(values: Tensor, fill: float) -> Tensor:
    """[rows, vocab] → [rows, parts, PART], the last one filled up."""
    if rest := -values.shape[-1] % PART:
        values = functional.pad(values, (0, rest), value=fill)
    return values.view(len(values), -1, PART)


def likeliest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` highest of each row [rows, vocab], highest first, and their token ids."""
    count = min(count, values.shape[-1])
    cut = parts(values, -torch.inf)
    if cut.shape[1] <= 2 * count:
        return tuple(values.topk(count))
    picked = cut.amax(-1).topk(count, sorted=False).indices
    begins = torch.arange(len(cut), device=cut.device)[:, None] * cut.shape[1]
    few = cut.view(-1, PART).index_select(0, (picked + begins).view(-1)).view(len(cut), -1)
    best = few.topk(count)
    return best.values, picked.gather(1, best.indices // PART) * PART + best.indices % PART


def num_candidates(descending: Tensor, limits: TruncationLimits, vocab: int) -> Tensor:
    """The number of likeliest tokens that are left, [rows, 1], of those in `descending` [rows, width].

    First `top_k`, then the tokens that reach `top_p` of the remaining mass (Holtzman et al. 2020, "nucleus sampling",
    https://arxiv.org/abs/1904.09751), then those with `min_p` of the likeliest's probability (Nguyen et al. 2024,
    https://arxiv.org/abs/2407.01082). Tokens equal to the last one are included too, so that the order among them does
    not matter. If the result is `width` and `width` is below the vocabulary, more tokens than those in `descending` may
    be left.
    """
    width = descending.shape[-1]
    cumulative = descending.cumsum(-1, dtype=torch.float64)
    by_k = _with_equals(descending, limits.top_k.clamp(max=width).long())
    limited = limits.top_k < vocab
    mass = torch.where(limited, cumulative.gather(-1, by_k - 1), 1.0)
    by_p = (cumulative - descending < limits.top_p * mass).sum(-1, keepdim=True).clamp(min=1)
    by_ratio = (descending >= limits.min_p * descending[:, :1]).sum(-1, keepdim=True).clamp(min=1)
    size = _with_equals(descending, torch.minimum(torch.minimum(by_k, by_p), by_ratio))
    if width < vocab:
        unseen = limited & (by_k == width) & limits.top_p.isfinite()  # the mass that `top_k` leaves is unknown
        size.masked_fill_(unseen, width)
    return size


def _with_equals(descending: Tensor, size: Tensor) -> Tensor:
    # Tokens of probability 0 cannot be drawn, so none is included for being equal.
    equals = (descending >= descending.gather(-1, size - 1)) & (descending > 0)
    return equals.sum(-1, keepdim=True)
