"""A model that thinks: the templates that open its thought, and a runner that writes it."""

import torch

from runtimes.llm.engine.sampler import sample
from runtimes.llm.sequence import Sampled, StepBatch
from tests.support.byte_tokenizer import CHATML, byte_tokenizer

OPENS = "{# </think> <tool_call> #}" + CHATML.replace("<|im_start|>assistant\n", "<|im_start|>assistant\n<think>\n")
MAY = "{# <think> </think> <tool_call> #}" + CHATML


class Mind:
    """A runner that generates `script`, as far as the sampler allows."""

    def __init__(self, script: str) -> None:
        self._script = byte_tokenizer().encode(script)
        self._began: dict[int, int] = {}

    def run(self, batch: StepBatch) -> dict[int, Sampled]:
        chunks = [chunk for chunk in batch.chunks if chunk.samples]
        if not chunks:
            return {}
        logits = torch.arange(258, 0, -1, dtype=torch.float32).repeat(len(chunks), 1) / 1000
        for row, chunk in enumerate(chunks):
            at = chunk.end - self._began.setdefault(chunk.sequence_id, chunk.end)
            logits[row, self._script[at] if at < len(self._script) else 257] = 100
        return {chunk.sequence_id: one for chunk, one in zip(chunks, sample(logits, chunks), strict=True)}
