"""Rows for the sampler: sequences as they stand before a step, and logits."""

from typing import Any

import torch

from runtimes.llm.sequence import Chunk, SamplingParams, Sequence

VOCAB = 8500
"""More tokens than the first candidates; the last part of the vocabulary is not whole."""
RequestOrigin = tuple[SamplingParams, list[int], list[int]]
"""The parameters, the prompt and the generated tokens."""


def chunk_of(identity: int, origin: RequestOrigin, **how: Any) -> Chunk:
    params, prompt, generated = origin
    sequence = Sequence(identity, list(prompt), params, **how)
    for token_id in generated:
        sequence.append(token_id)
    sequence.num_computed = len(sequence) - 1
    return sequence.chunk(1)


def logits_of(seed: int, rows: int, spread: float) -> torch.Tensor:
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * spread
