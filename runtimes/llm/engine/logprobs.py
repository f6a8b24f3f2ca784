"""Log-probabilities of tokens: the model's own, before a request's bias, penalties and masks."""

from collections.abc import Sequence

import torch
from torch import Tensor

from runtimes.llm.engine.sequence import TokenLogprobs
from runtimes.llm.engine.truncation import likeliest

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
