"""From logits to tokens.

Temperature, then top-k, then top-p, then one draw by inverting the distribution's cumulative sum. The draw
depends on nothing but the logits, the sequence's seed and the position: its random number is a hash of the two
(a counter-based generator, Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"), so neither the
rest of the batch nor a preemption changes an answer.
"""

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from runtimes.llm.sequence import Chunk

# The most likely tokens that nearly always hold a top-p set: found 10 × faster than by sorting the vocabulary.
_NUCLEUS = 1024


def sample(logits: Tensor, chunks: Sequence[Chunk]) -> list[int]:
    """The next token of each chunk; `logits` is [len(chunks), vocab]."""
    tokens = logits.argmax(dim=-1)
    drawn = [row for row, chunk in enumerate(chunks) if chunk.params.temperature > 0]
    if drawn:
        tokens[drawn] = _draw(logits[drawn].float(), [chunks[row] for row in drawn])
    result: list[int] = tokens.tolist()
    return result


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1), the same for the same arguments on every machine."""
    key = seed.to_bytes(8, "little") + position.to_bytes(8, "little")
    bits = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little")
    return (bits >> 11) / 2**53


def _draw(logits: Tensor, chunks: list[Chunk]) -> Tensor:
    def column(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32, device=logits.device)[:, None]

    # Shifted first: a tiny temperature must give 0 and -inf, not inf - inf.
    shifted = logits - logits.amax(dim=-1, keepdim=True)
    scores = shifted / column([chunk.params.temperature for chunk in chunks])
    if limited := [row for row, chunk in enumerate(chunks) if chunk.params.top_k]:
        scores[limited] = _top_k(scores[limited], [chunks[row].params.top_k for row in limited])
    probabilities = scores.softmax(dim=-1)
    if limited := [row for row, chunk in enumerate(chunks) if chunk.params.top_p < 1]:
        top_p = column([chunks[row].params.top_p for row in limited])
        probabilities[limited] = _top_p(probabilities[limited], top_p)
    numbers = [uniform(chunk.seed, chunk.end) for chunk in chunks]
    return _invert(probabilities, torch.tensor(numbers, dtype=torch.float64, device=logits.device))


def _top_k(scores: Tensor, top_k: list[int]) -> Tensor:
    """-inf wherever `top_k` others are higher; equals of the last are kept, so that no order among them counts."""
    counts = torch.tensor(top_k, device=scores.device).clamp(max=scores.shape[-1])[:, None]
    highest = scores.topk(int(counts.max()), dim=-1).values
    return scores.masked_fill(scores < highest.gather(-1, counts - 1), -torch.inf)


def _top_p(probabilities: Tensor, top_p: Tensor) -> Tensor:
    """0 outside the smallest set of likeliest tokens that reaches `top_p` [rows, 1]; equals of its last are kept.

    (Holtzman et al. 2020, "nucleus sampling", https://arxiv.org/abs/1904.09751.)
    """
    highest = probabilities.topk(min(_NUCLEUS, probabilities.shape[-1]), dim=-1).values
    if bool((highest.sum(dim=-1, keepdim=True) < top_p).any()):
        highest = probabilities.sort(dim=-1, descending=True).values
    before = highest.cumsum(dim=-1) - highest
    size = (before < top_p).sum(dim=-1, keepdim=True).clamp(min=1)
    return probabilities.masked_fill(probabilities < highest.gather(-1, size - 1), 0.0)


def _invert(weights: Tensor, numbers: Tensor) -> Tensor:
    """The first index whose cumulative share exceeds the row's number; `weights` need not sum to 1."""
    cumulative = weights.cumsum(dim=-1, dtype=torch.float64)
    target = (numbers * cumulative[:, -1])[:, None]
    return torch.searchsorted(cumulative, target, right=True)[:, 0].clamp(max=weights.shape[-1] - 1)
