"""Changes a request makes to the logits before sampling, in vLLM's order: bias, penalties, excluded tokens;
and the tokens that `top_k`, `top_p` and `min_p` leave to be sampled.

Rows without such parameters cost nothing; the others are changed together, in place, at the affected tokens only.

These three leave the likeliest tokens, so the first few of the vocabulary nearly always suffice. They are selected
without sorting the vocabulary: each part of it with one of the n likeliest tokens is one of the n parts with the
likeliest maximum.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from adapters.errors import BackendError, InferenceError
from runtimes.llm.sampling_params import SamplingParams
from runtimes.llm.sequence import Chunk, TokenTally

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


def process(logits: Tensor, chunks: Sequence[Chunk]) -> dict[int, InferenceError]:
    """Apply the chunks' parameters to `logits` [len(chunks), vocab].

    Returns the failure of each row that failed alone.
    """
    if biased := [row for row, chunk in enumerate(chunks) if chunk.params.bias_ids]:
        _add_biases(logits, biased, chunks)
    penalized = [(row, chunk.tally) for row, chunk in enumerate(chunks) if chunk.tally is not None and chunk.tally.ids]
    if penalized:
        _penalize(logits, penalized, chunks)
    for row, chunk in enumerate(chunks):
        if chunk.banned:
            logits[row, list(chunk.banned)] = -torch.inf
    if constrained := [row for row, chunk in enumerate(chunks) if chunk.constraint is not None]:
        return _constrain(logits, constrained, chunks)
    return {}


def _add_biases(logits: Tensor, rows: list[int], chunks: Sequence[Chunk]) -> None:
    ids = [chunks[row].params.bias_ids for row in rows]
    values = _tensor([chunks[row].params.bias_values for row in rows], torch.float32, logits.device)
    _, places = _places(logits, rows, ids)
    logits.view(-1)[places] += values


def _penalize(logits: Tensor, penalized: list[tuple[int, TokenTally]], chunks: Sequence[Chunk]) -> None:
    """Repetition, frequency and presence penalties, as in vLLM and transformers."""
    rows = [row for row, _ in penalized]
    sizes, places = _places(logits, rows, [tally.ids.tobytes() for _, tally in penalized])
    counts = _tensor([tally.counts.tobytes() for _, tally in penalized], torch.float32, logits.device)
    params = [chunks[row].params for row in rows]
    penalties = [[one.repetition_penalty, one.frequency_penalty, one.presence_penalty] for one in params]
    repetition, frequency, presence = (
        torch.tensor(penalties, device=logits.device).repeat_interleave(sizes, dim=0).unbind(1)
    )
    flat = logits.view(-1)
    scores = flat[places]
    scores = torch.where(scores > 0, scores / repetition, scores * repetition)
    flat[places] = scores - counts * frequency - (counts > 0) * presence


def _constrain(logits: Tensor, rows: list[int], chunks: Sequence[Chunk]) -> dict[int, InferenceError]:
    vocab = logits.shape[-1]
    masked, forbidden = [], []
    errors: dict[int, InferenceError] = {}
    for row in rows:
        constraint = chunks[row].constraint
        assert constraint is not None
        try:
            bits = np.frombuffer(constraint.mask(), dtype=np.uint8)
            forbidden.append(np.unpackbits(bits, count=vocab, bitorder="little") == 0)
            masked.append(row)
        except Exception as error:  # a constraint runs code of a third party
            errors[row] = BackendError(f"the answer's constraint has failed: {error}")
            errors[row].__cause__ = error
    for row, mask in zip(masked, forbidden, strict=True):
        logits[row].masked_fill_(torch.from_numpy(mask).to(logits.device), -torch.inf)
    return errors


def _places(logits: Tensor, rows: list[int], packed: list[bytes]) -> tuple[Tensor, Tensor]:
    """The number of affected tokens of each row, and their offsets in the flattened logits."""
    sizes = torch.tensor([len(ids) // 8 for ids in packed], device=logits.device)
    begins = torch.tensor(rows, device=logits.device) * logits.shape[-1]
    return sizes, _tensor(packed, torch.int64, logits.device) + begins.repeat_interleave(sizes)


def _tensor(packed: list[bytes], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.frombuffer(bytearray().join(packed), dtype=dtype).to(device)
