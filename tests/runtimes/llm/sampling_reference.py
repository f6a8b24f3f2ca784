"""The sampler as one would write it down: one row, the whole vocabulary sorted, in double precision."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from runtimes.llm.sequence import SamplingParams

Numbers = NDArray[np.float64]


def processed(logits: Numbers, params: SamplingParams, prompt: Sequence[int], generated: Sequence[int]) -> Numbers:
    """Bias, then repetition, frequency and presence penalties."""
    scores = logits.copy()
    for token, bias in params.logit_bias.items():
        scores[token] += bias
    for token in {*prompt, *generated}:
        scores[token] *= params.repetition_penalty if scores[token] <= 0 else 1 / params.repetition_penalty
    for token, count in Counter(generated).items():
        scores[token] -= count * params.frequency_penalty + params.presence_penalty
    return scores


def may_be_drawn(scores: Numbers, params: SamplingParams, slack: float) -> tuple[set[int], set[int]]:
    """The tokens that must be among those left, and those that may be if rounding errs by `slack` at every border."""
    if params.temperature == 0:
        best = set(np.flatnonzero(scores >= scores.max() - slack).tolist())
        return best if len(best) == 1 else set(), best
    weights = shares(scores, params)
    return _left(weights, params, -slack), _left(weights, params, slack)


def shares(scores: Numbers, params: SamplingParams) -> Numbers:
    """Probabilities of all tokens, before any is left out."""
    weights: Numbers = np.exp((scores - scores.max()) / params.temperature)
    weights /= weights.sum()
    return weights


def _left(weights: Numbers, params: SamplingParams, slack: float) -> set[int]:
    ranked = np.argsort(-weights, kind="stable")
    falling = weights[ranked]
    least = 0.0
    if params.top_k:
        least = falling[min(params.top_k, len(falling)) - 1] * (1 - slack)
    mass = falling[falling >= least].sum()
    before = falling.cumsum() - falling
    if params.top_p < 1:
        reached = before < params.top_p * mass + slack
        least = max(least, falling[max(int(reached.sum()), 1) - 1] * (1 - slack))
    least = max(least, params.min_p * falling[0] * (1 - slack))
    return set(ranked[falling >= min(least, falling[0])].tolist())
