"""Continuous batching: which sequences run in the next step, and how many tokens of each.

Every step takes what is already running, oldest first, and fills the rest of the token budget with waiting
prompts, cut into chunks where they are longer (Yu et al. 2022, "Orca"; Agrawal et al. 2024, "Sarathi-Serve",
https://arxiv.org/abs/2403.02310). First come, first served, so nobody starves: the newest sequence is the one
that gives its pages up when they run out, and it is the next to come back.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adapters.errors import BackendError, CapacityError, ContextTooLong, InferenceError
from runtimes.llm.block_manager import BlockManager
from runtimes.llm.sequence import Batch, Chunk, FinishReason, Sampled, Sequence, TokenOutput

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class QueueFull(CapacityError):
    """As many sequences wait as may wait."""


class PromptTooLong(ContextTooLong, ValueError):
    """The prompt leaves no room for an answer: `length` tokens, where `limit` is the most there may be."""

    def __init__(self, *, length: int, limit: int) -> None:
        super().__init__(f"the prompt has {length} tokens; the longest this engine takes has {limit}")
        self.length = length
        self.limit = limit


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Bounds, in sequences and tokens. `max_model_len` counts prompt and answer together.

    Raises ValueError if the bounds contradict each other.
    """

    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_queue: int
    whole_prompts: bool = False
    """No prompt is cut into chunks: the model looks at all of a text at once, and a step holds the longest."""

    def __post_init__(self) -> None:
        if self.max_model_len < 2:
            raise ValueError(f"max_model_len must hold a prompt and an answer: 2 or more, not {self.max_model_len}")
        if self.max_num_seqs < 1 or self.max_queue < 1:
            raise ValueError("max_num_seqs and max_queue must be 1 or more")
        # Each running sequence must be able to take one token in every step.
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) must be at least"
                f" max_num_seqs ({self.max_num_seqs})"
            )
        if self.whole_prompts and self.max_num_batched_tokens < self.max_model_len:
            raise ValueError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) must hold the longest prompt"
                f" ({self.max_model_len} tokens): this model computes no part of one"
            )


class Scheduler:
    """Holds every live sequence, waiting or running. Not thread-safe; it never waits.

    `add` → (`schedule` → run the batch → `update`)*, with `abort` at any moment between.
    """

    def __init__(self, config: SchedulerConfig, blocks: BlockManager) -> None:
        if config.max_model_len > blocks.capacity:
            raise ValueError(
                f"max_model_len is {config.max_model_len} tokens but the KV cache holds {blocks.capacity}:"
                " lower max_model_len or raise kv_cache_bytes"
            )
        self.config = config
        self.blocks = blocks
        self.num_preemptions = 0
        self.num_cached_tokens = 0
        self._sequences: dict[int, Sequence] = {}
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []  # oldest first; only the last may still have a prompt to compute

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def has_work(self) -> bool:
        return bool(self._sequences)

    def add(self, sequence: Sequence) -> None:
        """Queue a new sequence. Raises PromptTooLong if it could never run, QueueFull if too many wait."""
        limit = self.config.max_model_len - (1 if sequence.pooling is None else 0)
        if len(sequence) > limit:
            raise PromptTooLong(length=len(sequence), limit=limit)
        if len(self._waiting) >= self.config.max_queue:
            raise QueueFull(f"{len(self._waiting)} requests are waiting already; try again later")
        self._sequences[sequence.id] = sequence
        self._waiting.append(sequence)

    def abort(self, sequence_id: int) -> None:
        """Forget a sequence and free its pages now; nothing happens if it has ended."""
        sequence = self._sequences.get(sequence_id)
        if sequence is not None:
            self._remove(sequence)

    def schedule(self) -> Batch:
        """The next step's work; empty only if there is none."""
        chunks: list[Chunk] = []
        budget = self.config.max_num_batched_tokens
        while len(chunks) < len(self._running) and self._make_room(sequence := self._running[len(chunks)]):
            chunks.append(sequence.chunk(budget))
            budget -= len(chunks[-1].token_ids)
        while budget and len(self._running) < self.config.max_num_seqs and self._admit(budget):
            chunks.append(self._running[-1].chunk(budget))
            budget -= len(chunks[-1].token_ids)
        return Batch.of(chunks)

    def update(self, batch: Batch, sampled: Mapping[int, Sampled]) -> dict[int, TokenOutput]:
        """Record what a step computed. `sampled` holds what was found for each chunk that `samples` or has targets.

        Returns the new token of each sequence, or the error that ends it, by sequence id. Aborted sequences are
        passed over.
        """
        outputs: dict[int, TokenOutput] = {}
        for chunk in batch.chunks:
            sequence = self._sequences.get(chunk.sequence_id)
            if sequence is None:
                continue
            sequence.num_computed = chunk.end
            self.blocks.keep(sequence)
            if chunk.samples or chunk.targets:
                found = sampled[sequence.id]
                if chunk.targets:
                    # What was computed twice, after a preemption, is told once.
                    sequence.prompt_logprobs[chunk.start :] = found.prompt_logprobs
                if found.error is not None:
                    outputs[sequence.id] = self._fail(sequence, found.error)
                elif chunk.samples:
                    outputs[sequence.id] = self._append(sequence, found)
        return outputs

    def update_pooled(self, batch: Batch, sums: "Mapping[int, NDArray[np.float32]]") -> dict[int, TokenOutput]:
        """The same for texts to embed. `sums` holds what each chunk adds to its sequence's vector.

        Returns the output of each sequence that has come to its end.
        """
        outputs: dict[int, TokenOutput] = {}
        for chunk in batch.pooled:
            sequence = self._sequences.get(chunk.sequence_id)
            if sequence is None:
                continue
            sequence.num_computed = chunk.end
            self.blocks.keep(sequence)
            if chunk.start == 0:  # also after a preemption, which begins anew
                sequence.pooled = None
            if (more := sums.get(sequence.id)) is not None:
                sequence.pooled = more if sequence.pooled is None else sequence.pooled + more
            if chunk.samples:
                self._remove(sequence)
                if chunk.pooling == "mean" and sequence.pooled is not None:
                    sequence.pooled /= len(sequence)
                outputs[sequence.id] = TokenOutput(-1, "stop", sequence.num_cached, sequence.pooled)
        return outputs

    def check_integrity(self) -> None:
        """Raise AssertionError unless every page and every sequence is in exactly one place."""
        queued = [*self._running, *self._waiting]
        self.blocks.check_integrity(queued)
        if sorted(sequence.id for sequence in queued) != sorted(self._sequences):
            raise AssertionError(f"live sequences {sorted(self._sequences)} are not those queued: {queued}")
        if any(sequence.block_table for sequence in self._waiting):
            raise AssertionError("a waiting sequence holds KV pages")

    def _admit(self, budget: int) -> bool:
        """Start the sequence that waits longest, if its pages are there: others do not overtake it.

        Pages are taken for all of its tokens at once, so a prompt half computed never runs out of them.
        """
        if not self._waiting:
            return False
        sequence = self._waiting[0]
        if self.config.whole_prompts and len(sequence) > budget:
            return False
        # Of pages that are found, only keys and values are known: a vector is made of more than the last token's.
        if sequence.pooling in (None, "last"):
            self.blocks.take_over(sequence)
        if not self.blocks.allocate(sequence, len(sequence)):
            self.blocks.free(sequence)
            return False
        if sequence.num_generated == sequence.num_continued:
            sequence.num_cached = sequence.num_computed
            self.num_cached_tokens += sequence.num_cached
        self._running.append(self._waiting.popleft())
        return True

    def _make_room(self, sequence: Sequence) -> bool:
        """Get `sequence` the page of its newest token, preempting from the newest on; False if it was that."""
        while not self.blocks.allocate(sequence, len(sequence)):
            newest = self._running.pop()
            self.blocks.free(newest)
            self._waiting.appendleft(newest)
            self.num_preemptions += 1
            if newest is sequence:
                return False
        return True

    def _append(self, sequence: Sequence, found: Sampled) -> TokenOutput:
        try:
            sequence.append(found.token_id)
        except Exception as error:  # a constraint is a program of others
            failure = BackendError(f"the answer's constraint has failed: {error}")
            failure.__cause__ = error
            return self._fail(sequence, failure)
        finish_reason = self._finish_reason(sequence, found.token_id)
        if finish_reason is not None:
            self._remove(sequence)
        prompt, sequence.prompt_logprobs = sequence.prompt_logprobs, []
        return TokenOutput(
            found.token_id,
            finish_reason,
            sequence.num_cached,
            logprobs=found.logprobs,
            prompt_logprobs=tuple(prompt),
        )

    def _fail(self, sequence: Sequence, error: InferenceError) -> TokenOutput:
        self._remove(sequence)
        return TokenOutput(-1, error=error)

    def _finish_reason(self, sequence: Sequence, token_id: int) -> FinishReason | None:
        if token_id in sequence.stop_token_ids:
            return "stop"
        if sequence.num_generated >= sequence.params.max_tokens or len(sequence) >= self.config.max_model_len:
            return "length"
        return None

    def _remove(self, sequence: Sequence) -> None:
        del self._sequences[sequence.id]
        queue = self._running if sequence in self._running else self._waiting
        queue.remove(sequence)
        self.blocks.free(sequence)
