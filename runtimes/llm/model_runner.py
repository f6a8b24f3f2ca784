"""One step of the model: a plain-data `Batch` in, the sampled tokens out."""

from runtimes.llm.executor import Executor
from runtimes.llm.sampler import sample
from runtimes.llm.sequence import Batch


class ModelRunner:
    """Keeps nothing about sequences: a batch says all there is to know."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor

    def run(self, batch: Batch) -> dict[int, int]:
        """Compute the batch; the next token of each sequence whose chunk `samples`, by sequence id."""
        if not batch.chunks:
            return {}
        rows, sampled, row = [], [], -1
        for chunk in batch.chunks:
            row += len(chunk.token_ids)
            if chunk.samples:
                rows.append(row)
                sampled.append(chunk)
        logits = self.executor.logits(batch.chunks, rows)
        if not rows:
            return {}
        tokens = sample(logits, sampled)
        return {chunk.sequence_id: token for chunk, token in zip(sampled, tokens, strict=True)}
