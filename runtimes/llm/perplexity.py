"""How well a model predicts a text: its perplexity, and the tokens that it finds the likeliest."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from runtimes.llm.engine.executor import Executor
from runtimes.llm.sequence import SamplingParams
from runtimes.llm.sequence import Sequence as TokenSequence

BLOCK = 16
"""Tokens of a page of the executor's cache."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What was thought of a text: `best` [tokens] is the likeliest after each, `losses` [tokens] how unlikely (in nats)
    it found what does come."""

    best: Tensor
    losses: Tensor

    @property
    def perplexity(self) -> float:
        return math.exp(float(self.losses.double().mean()))

    def agreement(self, other: "Reading") -> float:
        """How often both like the same token best, 0 to 1."""
        return float((self.best == other.best).double().mean())


@torch.inference_mode()  # type: ignore[untyped-decorator]
def read(executor: Executor, texts: Sequence[Sequence[int]]) -> Reading:
    """Each text of two tokens or more is read alone, on the same pages."""
    best, losses = [], []
    for text in texts:
        sequence = TokenSequence(0, list(text), SamplingParams(max_tokens=1))
        sequence.block_table = list(range(-(-len(text) // BLOCK)))
        logits = executor.logits([sequence.chunk(len(text))], range(len(text) - 1))
        best.append(logits.argmax(dim=-1))
        losses.append(torch.nn.functional.cross_entropy(logits, torch.tensor(text[1:]), reduction="none"))
    return Reading(torch.cat(best), torch.cat(losses))


def windows(tokens: Sequence[int], count: int, length: int) -> list[list[int]]:
    """`count` pieces of a text, `length` tokens each, evenly apart. Raises ValueError for a text that is shorter."""
    apart = (len(tokens) - length) // max(count - 1, 1)
    if apart < (count > 1) or len(tokens) < length:
        raise ValueError(f"the text has {len(tokens)} tokens, which is too few for {count} pieces of {length}")
    return [list(tokens[index * apart :][:length]) for index in range(count)]
