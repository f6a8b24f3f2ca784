"""One step of the model: a plain-data `StepBatch` in, the sampled tokens out."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from runtimes.llm.engine.results import accepted
from runtimes.llm.engine.sampler import prompt_logprobs, sample_apart
from runtimes.llm.sequence import Chunk, Sampled, StepBatch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor


class Hidden(Protocol):
    """The part of an executor that a pooler uses."""

    def hidden(self, chunks: Sequence[Chunk]) -> "Tensor":
        """Compute the chunks, the hidden states of their tokens after the last norm: [T, hidden], float32."""


class Logits(Protocol):
    """The part of an executor that a runner uses."""

    def logits(self, chunks: Sequence[Chunk], rows: Sequence[int]) -> "Tensor":
        """Compute the chunks, [len(rows), vocab] of the successors of the tokens `rows`, float32."""


class Pooler:
    """Reduces chunks of texts to vectors. Stateless: the scheduler adds the contributions of a text's chunks."""

    def __init__(self, executor: Hidden) -> None:
        self._executor = executor

    def run(self, chunks: Sequence[Chunk]) -> "Mapping[int, NDArray[np.float32]]":
        """Each chunk's part of its sequence's vector [hidden], by sequence id: the sum of its tokens' states for a
        mean, else the one state that counts, where the chunk has it."""
        states = self._executor.hidden(chunks).float().cpu()
        sums, first = {}, 0
        for chunk in chunks:
            rows = states[first : first + len(chunk.token_ids)]
            first += len(chunk.token_ids)
            if chunk.pooling == "mean":
                sums[chunk.sequence_id] = rows.sum(dim=0).numpy()
            elif chunk.pooling == "last" and chunk.samples:
                sums[chunk.sequence_id] = rows[-1].clone().numpy()
            elif chunk.pooling == "cls" and chunk.start == 0:
                sums[chunk.sequence_id] = rows[0].clone().numpy()
        return sums


class ModelRunner:
    """Runs batches. Stateless: a batch contains everything about its sequences."""

    def __init__(self, executor: Logits) -> None:
        self.executor = executor

    def run(self, batch: StepBatch) -> dict[int, Sampled]:
        """Compute the batch; returns, by sequence id, the result of each chunk that `samples` or has targets."""
        if not batch.chunks:
            return {}
        if any(chunk.targets for chunk in batch.chunks):
            return self._run_with_targets(batch)
        rows: list[int] = []
        chunks: list[Chunk] = []
        row = -1
        for chunk in batch.chunks:
            row += len(chunk.token_ids)
            if chunk.steps:
                rows += range(row + 1 - len(chunk.steps), row + 1)
                chunks += chunk.steps
            elif chunk.samples:
                rows.append(row)
                chunks.append(chunk)
        logits = self.executor.logits(batch.chunks, rows)
        if not rows:
            return {}
        # A state that a step has changed cannot be read again.
        again = logits.clone() if batch.chunks[0].state is not None else None
        sampled = sample_apart(
            logits, chunks, lambda: self.executor.logits(batch.chunks, rows) if again is None else again
        )
        return _by_sequence(batch, chunks, sampled)

    def _run_with_targets(self, batch: StepBatch) -> dict[int, Sampled]:
        rows: list[int] = []
        chunks: list[Chunk] = []
        places: list[int] = []
        spans, first = [], 0
        for chunk in batch.chunks:
            spans.append((chunk, len(rows)))
            rows += range(first, first + len(chunk.targets))
            first += len(chunk.token_ids)
            if chunk.samples:
                steps = chunk.steps or (chunk,)
                places += range(len(rows), len(rows) + len(steps))
                rows += range(first - len(steps), first)
                chunks += steps
        logits = self.executor.logits(batch.chunks, rows)
        results: dict[int, Sampled] = {}
        if places:
            results = _by_sequence(batch, chunks, sample_apart(logits[places], chunks, lambda: logits[places]))
        for chunk, begin in spans:
            if chunk.targets:
                prompt_rows = logits[begin : begin + len(chunk.targets)]
                scored = prompt_logprobs(prompt_rows, chunk.targets, chunk.params.prompt_logprobs or 0)
                results[chunk.sequence_id] = results.get(chunk.sequence_id, Sampled(-1))._replace(
                    prompt_logprobs=scored
                )
        return results


def _by_sequence(batch: StepBatch, chunks: list[Chunk], sampled: list[Sampled]) -> dict[int, Sampled]:
    if not batch.num_proposed:
        return {chunk.sequence_id: one for chunk, one in zip(chunks, sampled, strict=True)}
    results, rest = {}, iter(sampled)
    for chunk in batch.chunks:
        if chunk.samples:
            results[chunk.sequence_id] = accepted(chunk.token_ids[1:], [next(rest) for _ in chunk.steps or (chunk,)])
    return results
