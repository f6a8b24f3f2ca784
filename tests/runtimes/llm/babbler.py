"""A model without any sense: its logits are chance, and the real sampler chooses by them."""

import random

import torch

from runtimes.llm.engine.sampler import sample
from runtimes.llm.grammar.constraint import TextRules
from runtimes.llm.sequence import Sampled, StepBatch
from tests.support.byte_tokenizer import byte_tokenizer

LIKELY = b'"}],:{[0123456789 '
_BONUS = 3.0
VOCAB = 264  # the model's is padded
END = 257


class Babbler:
    """A runner whose logits depend only on `seed`, the tokens' positions and the number of earlier steps.

    Tokens that end JSON are a little likelier, or its texts would have no end; so are tokens that end an answer.
    """

    def __init__(self, seed: int = 0) -> None:
        self.steps = 0
        self._chance = torch.Generator().manual_seed(seed)

    def run(self, batch: StepBatch) -> dict[int, Sampled]:
        self.steps += 1
        chunks = [chunk for chunk in batch.chunks if chunk.samples]
        if not chunks:
            return {}
        logits = torch.randn((len(chunks), 258), generator=self._chance)
        logits[:, [*byte_tokenizer().encode(LIKELY.decode()), END]] += _BONUS
        return {chunk.sequence_id: one for chunk, one in zip(chunks, sample(logits, chunks), strict=True)}


def allowed(matcher: TextRules) -> list[int]:
    mask = matcher.mask()
    return [id for id in range(min(VOCAB, 8 * len(mask))) if mask[id // 8] >> id % 8 & 1]


def babble(matcher: TextRules, chance: random.Random, most: int = 4000) -> str | None:
    """The text of a random model; None if it does not end."""
    token_ids: list[int] = []
    likely = set(byte_tokenizer().encode(LIKELY.decode())) | {END}
    while len(token_ids) < most:
        may = allowed(matcher)
        better = [id for id in may if id in likely]
        token_id = chance.choice(better if better and chance.random() < 0.7 else may)
        matcher.advance(token_id)
        if token_id == END:
            return b"".join(byte_tokenizer().piece(id) for id in token_ids).decode()
        token_ids.append(token_id)
    return None
