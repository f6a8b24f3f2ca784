"""Samples tokens from logits.

Bias, penalties and excluded tokens come first (`logits_processors`), then temperature, top-k, top-p and min-p,
then one draw by inverting the distribution's cumulative sum. The draw depends only on the logits, the
sequence's seed and the position: its random number is a hash of the two (a counter-based generator, Salmon et al. 2011,
"Parallel random numbers: as easy as 1, 2, 3"), so neither the rest of the batch nor a preemption changes an answer.
The parameters of other rows do not change the computation of a row.
"""

import hashlib
import logging
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from adapters.errors import BackendError, CallerError, InferenceError
from runtimes.llm.engine.logits_processors import TruncationLimits, likeliest, num_candidates, parts, process
from runtimes.llm.memory import ran_out
from runtimes.llm.sequence import Chunk, Sampled, TokenLogprobs

# Rows of the vocabulary that are processed at once: a prompt has many.
_ROWS = 64
# OpenAI's value for an impossible token: JSON has no infinity.
_LEAST = -9999.0


class Logprobs:
    """Log-probabilities of rows of logits [rows, vocab]: the `counts` likeliest of each."""

    def __init__(self, logits: Tensor, counts: Sequence[int]) -> None:
        self._all = logits.log_softmax(dim=-1)
        self._counts = counts
        values, ids = likeliest(self._all, max(max(counts), 1))
        self._values, self._ids = values.clamp_(min=_LEAST).tolist(), ids.tolist()

    def of(self, token_ids: Tensor) -> list[TokenLogprobs]:
        """The log-probability of one token of each row, [rows]."""
        chosen = self._chosen(token_ids)[:, 0].clamp(min=_LEAST).tolist()
        return [
            TokenLogprobs(logprob, tuple(zip(ids[:count], values[:count], strict=True)))
            for logprob, ids, values, count in zip(chosen, self._ids, self._values, self._counts, strict=True)
        ]

    def ranked(self, token_ids: Tensor) -> list[TokenLogprobs]:
        """The log-probability and the rank of one token of each row."""
        ranks = ((self._all > self._chosen(token_ids)).sum(-1) + 1).tolist()
        return [one._replace(rank=rank) for one, rank in zip(self.of(token_ids), ranks, strict=True)]

    def _chosen(self, token_ids: Tensor) -> Tensor:
        return self._all.gather(-1, token_ids[:, None])


@torch.inference_mode()  # type: ignore[untyped-decorator]
def prompt_logprobs(logits: Tensor, targets: Sequence[int], count: int) -> tuple[TokenLogprobs, ...]:
    """The log-probability of each of `targets` by its row of `logits` [len(targets), vocab]."""
    scored: list[TokenLogprobs] = []
    token_ids = torch.tensor(targets, device=logits.device)
    for rows, ids in zip(logits.split(_ROWS), token_ids.split(_ROWS), strict=True):
        scored += Logprobs(rows, [count] * len(rows)).ranked(ids)
    return tuple(scored)


# The number of candidates that nearly always contain every token that may be drawn.
_FEW = 64
_MANY = 4096
log = logging.getLogger(__name__)


@torch.inference_mode()  # type: ignore[untyped-decorator]
def sample(logits: Tensor, chunks: Sequence[Chunk]) -> list[Sampled]:
    """The next token of each chunk. `logits` [len(chunks), vocab], float32, are changed in place.

    A row whose logits allow no token (NaN, or all excluded) has an error; the other rows are not affected.
    """
    if scored := [row for row, chunk in enumerate(chunks) if chunk.params.logprobs is not None]:
        reported = Logprobs(logits[scored], [chunks[row].params.logprobs or 0 for row in scored])
    errors = process(logits, chunks)
    tokens = _best(logits)
    errors |= _unusable(logits.gather(-1, tokens[:, None])[:, 0].tolist(), chunks)
    if drawn := [row for row, chunk in enumerate(chunks) if chunk.params.temperature > 0 and row not in errors]:
        _draw_into(tokens, logits, drawn, chunks)
    logprobs: dict[int, TokenLogprobs] = dict(zip(scored, reported.of(tokens[scored]), strict=True)) if scored else {}
    result = [Sampled(token, logprobs.get(row)) for row, token in enumerate(tokens.tolist())]
    for row, error in errors.items():
        result[row] = Sampled(-1, error=error)
    return result


def sample_apart(logits: Tensor, chunks: Sequence[Chunk], afresh: Callable[[], Tensor]) -> list[Sampled]:
    """`sample`. If it raises, each row is sampled alone, so that only the rows at fault have an error.

    `afresh` computes the logits again, since `sample` has changed them. Raises only if memory runs out.
    """
    try:
        return list(sample(logits, chunks))
    except Exception as error:
        if ran_out(error):
            raise
        log.exception("sampling a step of %d rows failed: each row is sampled alone", len(chunks))
    logits = afresh()
    return [_sample_alone(logits[row : row + 1], chunk) for row, chunk in enumerate(chunks)]


def _sample_alone(logits: Tensor, chunk: Chunk) -> Sampled:
    try:
        (sampled,) = sample(logits, [chunk])
    except Exception as error:
        if ran_out(error):
            raise
        failure = BackendError("no token could be sampled for this answer")
        failure.__cause__ = error
        return Sampled(-1, error=failure)
    assert isinstance(sampled, Sampled)
    return sampled


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that depends on the arguments only, on every machine."""
    key = seed.to_bytes(8, "little") + position.to_bytes(8, "little")
    bits = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little")
    return (bits >> 11) / 2**53


def _best(logits: Tensor) -> Tensor:
    if logits.device.type == "cpu":  # numpy's is ten times as fast here
        return torch.from_numpy(logits.numpy().argmax(-1))
    return logits.argmax(-1)


def _unusable(best: list[float], chunks: Sequence[Chunk]) -> dict[int, InferenceError]:
    """Greedy tokens: the highest logit of each row, which is NaN if any logit is."""
    errors: dict[int, InferenceError] = {}
    for row, logit in enumerate(best):
        if logit == -torch.inf and chunks[row].params.bad_words is not None:
            message = "`bad_words` leave no token that may come next."
            errors[row] = CallerError(message, param="bad_words")
        elif logit == -torch.inf:
            errors[row] = BackendError("no token may come next: all are forbidden")
        elif not -torch.inf < logit < torch.inf:
            errors[row] = BackendError(f"the model has computed no probabilities: a logit is {logit}")
    return errors


def _draw_into(tokens: Tensor, logits: Tensor, rows: list[int], chunks: Sequence[Chunk]) -> None:
    device = logits.device
    params = [chunks[row].params for row in rows]
    numbers = [uniform(chunks[row].seed, chunks[row].end) for row in rows]
    temperature = torch.tensor([[one.temperature] for one in params], device=device)
    scores = logits if len(rows) == len(logits) else logits[rows]
    # Shifted first: a tiny temperature must give 0 and -inf, not inf - inf. All in place: allocation is slow.
    scores.sub_(scores.amax(dim=-1, keepdim=True)).div_(temperature)
    probabilities = torch.softmax(scores, dim=-1, out=scores)
    chance = torch.tensor(numbers, dtype=torch.float64, device=device)[:, None]
    limited = [i for i, one in enumerate(params) if one.top_k or one.top_p < 1 or one.min_p]
    if len(limited) == len(rows):
        drawn = _draw_limited(probabilities, chance, TruncationLimits.of(params, device))
    else:
        drawn = _draw(probabilities, chance)
        if limited:
            limits = TruncationLimits.of([params[i] for i in limited], device)
            drawn[limited] = _draw_limited(probabilities[limited], chance[limited], limits)
    tokens[rows] = drawn


def _draw_limited(probabilities: Tensor, chance: Tensor, limits: TruncationLimits) -> Tensor:
    vocab = probabilities.shape[-1]
    values, ids = likeliest(probabilities, _FEW)
    size = num_candidates(values, limits, vocab)
    cumulative = values.cumsum(-1, dtype=torch.float64)
    total = cumulative.gather(-1, size - 1)
    tokens = ids.gather(-1, _first_over(cumulative, chance * total, total))[:, 0]
    if values.shape[-1] < vocab and len(more := (size[:, 0] == values.shape[-1]).nonzero()[:, 0]):
        tokens[more] = _draw_widely(probabilities[more], chance[more], limits.take(more))
    return tokens


def _draw_widely(probabilities: Tensor, chance: Tensor, limits: TruncationLimits) -> Tensor:
    """Sample rows with many possible tokens."""
    descending, vocab = _descending(probabilities), probabilities.shape[-1]
    size = num_candidates(descending[:, :_MANY].contiguous(), limits, vocab)
    if vocab > _MANY and len(more := (size[:, 0] == _MANY).nonzero()[:, 0]):
        size[more] = num_candidates(descending[more], limits.take(more), vocab)
    least = descending.gather(-1, size - 1)
    return _draw(probabilities.masked_fill(probabilities < least, 0.0), chance)


def _descending(probabilities: Tensor) -> Tensor:
    if probabilities.device.type == "cpu":  # numpy's is twenty times as fast here
        return torch.from_numpy(np.sort(probabilities.numpy())[:, ::-1].copy())
    return probabilities.sort(dim=-1, descending=True).values


def _draw(weights: Tensor, chance: Tensor) -> Tensor:
    """Draw a token of each row [rows, vocab] by its weight: first its part of the vocabulary, then the token."""
    cut = parts(weights, 0.0)
    cumulative = cut.sum(-1, dtype=torch.float32).double().cumsum(-1)
    target = chance * cumulative[:, -1:]
    part = _first_over(cumulative, target, cumulative[:, -1:])
    before = torch.where(part > 0, cumulative.gather(-1, (part - 1).clamp(min=0)), 0.0)
    inside = cut[torch.arange(len(cut), device=cut.device), part[:, 0]].double().cumsum(-1)
    return (part * cut.shape[-1] + _first_over(inside, target - before, inside[:, -1:]))[:, 0]


def _first_over(cumulative: Tensor, target: Tensor, total: Tensor) -> Tensor:
    """The first index [rows, 1] whose cumulative sum exceeds the `target`; never beyond `total`, despite rounding."""
    below = torch.nextafter(total, torch.zeros_like(total))
    return torch.searchsorted(cumulative, torch.minimum(target, below), right=True)
