"""One step of the model: a plain-data `StepBatch` in, the sampled tokens out."""

from runtimes.llm.engine.logprobs import prompt_logprobs
from runtimes.llm.engine.sampler import sample_apart
from runtimes.llm.engine.sequence import Chunk, Sampled, StepBatch
from runtimes.llm.model.executor import Executor


class ModelRunner:
    """Runs batches. Stateless: a batch contains everything about its sequences."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor

    def run(self, batch: StepBatch) -> dict[int, Sampled]:
        """Compute the batch; returns, by sequence id, the result of each chunk that `samples` or has targets."""
        if not batch.chunks:
            return {}
        if any(chunk.targets for chunk in batch.chunks):
            return self._run_with_targets(batch)
        rows, chunks, row = [], [], -1
        for chunk in batch.chunks:
            row += len(chunk.token_ids)
            if chunk.samples:
                rows.append(row)
                chunks.append(chunk)
        logits = self.executor.logits(batch.chunks, rows)
        if not rows:
            return {}
        return _by_sequence(chunks, sample_apart(logits, chunks, lambda: self.executor.logits(batch.chunks, rows)))

    def _run_with_targets(self, batch: StepBatch) -> dict[int, Sampled]:
        rows: list[int] = []
        chunks, places, spans, first = [], [], [], 0
        for chunk in batch.chunks:
            spans.append((chunk, len(rows)))
            rows += range(first, first + len(chunk.targets))
            first += len(chunk.token_ids)
            if chunk.samples:
                places.append(len(rows))
                rows.append(first - 1)
                chunks.append(chunk)
        logits = self.executor.logits(batch.chunks, rows)
        results: dict[int, Sampled] = {}
        if places:
            results = _by_sequence(chunks, sample_apart(logits[places], chunks, lambda: logits[places]))
        for chunk, begin in spans:
            if chunk.targets:
                prompt_rows = logits[begin : begin + len(chunk.targets)]
                scored = prompt_logprobs(prompt_rows, chunk.targets, chunk.params.prompt_logprobs or 0)
                results[chunk.sequence_id] = results.get(chunk.sequence_id, Sampled(-1))._replace(
                    prompt_logprobs=scored
                )
        return results


def _by_sequence(chunks: list[Chunk], sampled: list[Sampled]) -> dict[int, Sampled]:
    return {chunk.sequence_id: one for chunk, one in zip(chunks, sampled, strict=True)}
