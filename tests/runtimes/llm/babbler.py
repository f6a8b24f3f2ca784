"""A model without any sense: its logits are chance, and the real sampler chooses by them."""

import torch

from runtimes.llm.engine.sampler import sample
from runtimes.llm.engine.sequence import Sampled, StepBatch

LIKELY = b'"}],:{[0123456789 '
_BONUS = 3.0


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
        logits[:, [*_ids(), 257]] += _BONUS
        return {chunk.sequence_id: one for chunk, one in zip(chunks, sample(logits, chunks), strict=True)}


def _ids() -> list[int]:
    from tests.runtimes.llm.server_fixtures import byte_tokenizer

    return byte_tokenizer().encode(LIKELY.decode())
