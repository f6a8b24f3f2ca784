"""Continuous batching: selects the sequences of the next step, and the number of tokens of each.

Every step first takes one token of each generating sequence, then fills the token budget with prompts, cut into chunks
where they are longer (Yu et al. 2022, "Orca"; Agrawal et al. 2024, "Sarathi-Serve", https://arxiv.org/abs/2403.02310).
Every step selects the next prompt anew (`queue`), so a long prompt delays neither sequences that decode nor other
tenants' prompts. Beside sequences that decode, the chunks of a step fit into a time (`step_budget`).

Within one priority no sequence starves: none begins before the selected one, and when pages run out, the preempted
sequence belongs to the tenant that has received most. Background work, such as lines of batches, rests in a step while
a live prompt waits for its first token. If several prompts have the same beginning, one prompt computes
the shared part, and the others begin as soon as it is computed.
"""

from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING

from adapters.errors import InferenceError
from runtimes.histogram import LATENCY_BOUNDS, Histogram
from runtimes.llm.engine.block_manager import BlockManager
from runtimes.llm.engine.queue import PromptTooLong, QueueFull, Running, SequenceQueue, ServedTokens, TooLate
from runtimes.llm.engine.results import (
    add_pooled,
    appended,
    finish_reason,
    joined_outputs,
    pooled_output,
    token_output,
)
from runtimes.llm.engine.speculation import Speculator
from runtimes.llm.engine.step_budget import LIVE_SECONDS, SchedulerConfig, StepBudget, shared_wait
from runtimes.llm.sequence import Chunk, Sampled, Sequence, StepBatch, TokenOutput

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Scheduler:
    """Holds every live sequence, waiting or running. Not thread-safe; it never waits and has no clock.

    `add` → (`schedule` → run the batch → `update`)*, with `abort` at any moment between. A sequence that ends without a
    last token, such as one whose deadline has passed, is among the `failures` that are taken after a step.
    """

    def __init__(self, config: SchedulerConfig, blocks: BlockManager, speculator: Speculator | None = None) -> None:
        if config.max_model_len > blocks.capacity:
            raise ValueError(
                f"max_model_len is {config.max_model_len} tokens but the KV cache holds {blocks.capacity}:"
                " lower max_model_len or raise kv_cache_bytes"
            )
        self.config = config
        self.blocks = blocks
        self.speculator = speculator
        self.served = ServedTokens()
        self.num_preemptions = 0
        self.num_cached_tokens = 0
        self.waits = Histogram(LATENCY_BOUNDS)
        self._sequences: dict[int, Sequence] = {}
        self._waiting = SequenceQueue(self.served)
        self._running = Running(self.served)
        self._failures: dict[int, InferenceError] = {}
        self._budget = StepBudget(config.max_num_batched_tokens, config.max_step_seconds)
        self._live_until = -inf
        """The time until which the next live request is expected."""
        self._computes_prompts = False
        self._next_deadline = inf  # or earlier: a sequence with it may have ended since

    @property
    def num_waiting(self) -> int:
        return self._waiting.size

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def has_work(self) -> bool:
        return bool(self._sequences or self._failures)

    def add(self, sequence: Sequence, now: float = 0.0) -> None:
        """Queue a new sequence.

        Raises PromptTooLong if it could never run, TooLate if its deadline has passed, QueueFull if the queue is full
        and no waiting sequence has a lower claim.
        """
        # A prompt that is only embedded, checked or scored leaves no place for an answer.
        params = sequence.params
        answers = sequence.pooling is None and params.max_tokens > (0 if params.prompt_logprobs is None else 1)
        limit = self.config.max_model_len - answers
        if len(sequence) > limit:
            raise PromptTooLong(length=len(sequence), limit=limit)
        if sequence.standing.deadline <= now:
            raise TooLate()
        sequence.arrived = now
        if sequence.standing.priority < self.config.background:
            self._live_until = now + LIVE_SECONDS
        if self._waiting.size >= self.config.max_queue:
            self._make_place(sequence, now)
        self._sequences[sequence.id] = sequence
        self._waiting.push(sequence)
        self._next_deadline = min(self._next_deadline, sequence.standing.deadline)

    def abort(self, sequence_id: int) -> None:
        """Remove a sequence and free its pages; no effect if it has ended."""
        self._failures.pop(sequence_id, None)
        sequence = self._sequences.get(sequence_id)
        if sequence is not None:
            self._remove(sequence)

    def fail(self, sequence_id: int, error: InferenceError) -> None:
        """End a sequence with an error; no effect if it has ended."""
        sequence = self._sequences.get(sequence_id)
        if sequence is not None:
            self._remove(sequence)
            self._failures[sequence_id] = error

    def take_failures(self) -> dict[int, InferenceError]:
        """The errors of sequences that ended without a last token since the last call, by sequence id."""
        failures, self._failures = self._failures, {}
        return failures

    def schedule(self, now: float = 0.0) -> StepBatch:
        """The next step's batch; empty only without work."""
        self._expire(now)
        self._make_room()
        background = self.config.background
        live = (sequence.standing.priority < background for sequence in self._running.prompts.values())
        if any(live) or self._waiting.has_above(background):
            batch = self._select(now, background)
            if batch.chunks or batch.pooled:
                return batch
        return self._select(now, inf)

    def _select(self, now: float, below: float) -> StepBatch:
        """A step of sequences of priority numbers below `below`; the others rest."""
        running = self._running
        if below == inf and now < self._live_until:
            decoding, budget = self._brief()
        else:
            decoding = running.decoding_below(below)
            budget = self._budget.prompt_tokens(len(decoding), shared_wait(self._waiting, running, now))
        prompts: dict[int, Chunk] = {}
        passed: set[int] = set()
        while budget and (sequence := self._next_prompt(passed, budget, now, below)) is not None:
            passed.add(sequence.id)
            chunk = prompts[sequence.id] = sequence.chunk(budget)
            budget -= len(chunk.token_ids)
            self.served.charge_prompt(sequence, chunk)
        decoding = [sequence for sequence in decoding if sequence.id in running.decoding]
        # A prompt that was selected for another's sake may have been preempted for that other.
        chunks = [chunk for id_, chunk in prompts.items() if id_ in running.prompts]
        return StepBatch.of(self._decodes(decoding, chunks), chunks)

    def _decodes(self, decoding: list[Sequence], prompts: list[Chunk]) -> list[Chunk]:
        """The chunks of sequences that decode, with proposed tokens where these pay and fit."""
        if self.speculator is None or not decoding:
            return [sequence.chunk(1) for sequence in decoding]
        room = self.config.max_num_batched_tokens - len(decoding) - sum([len(chunk.token_ids) for chunk in prompts])
        proposed = self.speculator.proposals(decoding, room, self._budget.prompt_token if prompts else 0.0)
        chunks = []
        for sequence in decoding:
            tokens = proposed.get(sequence.id)
            if tokens and not self.blocks.allocate(sequence, len(sequence) + len(tokens)):
                del tokens[len(sequence.block_table) * self.blocks.block_size - len(sequence) :]
            chunks.append(sequence.speculation(tokens) if tokens else sequence.chunk(1))
        if (drafts := self.speculator.drafts) is not None and not prompts:
            drafts.plan(decoding, chunks, self.blocks, room - sum(map(len, proposed.values())))
        return chunks

    def _brief(self) -> tuple[list[Sequence], int]:
        """The sequences that decode in a brief step, and its prompt tokens. Background work decodes in one step and
        computes prompts in the next, so that a live prompt waits for one of them only."""
        background, running = self.config.background, self._running
        has_prompts = bool(running.prompts or self._waiting.size)
        self._computes_prompts = has_prompts and not (self._computes_prompts and running.decoding)
        decoding = running.decoding_below(background)
        if self._computes_prompts:
            return decoding, self._budget.brief_prompt_tokens(len(decoding))
        return running.turn(background, self._budget.brief_decodes()), 0

    def measured(self, batch: StepBatch, seconds: float) -> None:
        """Report the duration of a step: it sets the chunk sizes of later steps."""
        self._budget.measured(batch.num_decodes, batch.num_prompt_tokens, seconds)
        if self.speculator is not None and batch.num_decodes and not batch.num_prompt_tokens:
            self.speculator.measured(batch.num_decodes, batch.num_proposed, seconds)

    def update(self, batch: StepBatch, sampled: Mapping[int, Sampled]) -> dict[int, TokenOutput]:
        """Record the results of a step. `sampled` has the result of each chunk that `samples` or has targets.

        Returns the new token of each sequence, or the error that ends it, by sequence id. Aborted sequences are
        skipped.
        """
        outputs: dict[int, TokenOutput] = {}
        page = self.blocks.block_size
        for chunk in batch.chunks:
            sequence = self._sequences.get(chunk.sequence_id)
            if sequence is None:
                continue
            if chunk.steps:
                outputs[sequence.id] = self._accept(sequence, chunk, sampled[sequence.id])
                continue
            sequence.num_computed = end = chunk.end
            if end // page > sequence.num_indexed:
                self.blocks.keep(sequence)
            if chunk.samples or chunk.targets:
                result = sampled[sequence.id]
                if chunk.targets:
                    # Values computed again after a preemption replace the first ones.
                    sequence.prompt_logprobs[chunk.start :] = result.prompt_logprobs
                if result.error is not None:
                    outputs[sequence.id] = self._fail(sequence, result.error)
                elif chunk.samples:
                    outputs[sequence.id] = self._append(sequence, result)
        return outputs

    def update_pooled(self, batch: StepBatch, sums: "Mapping[int, NDArray[np.float32]]") -> dict[int, TokenOutput]:
        """`update` for texts to embed. `sums` has the contribution of each chunk to its sequence's vector.

        Returns the output of each sequence that has ended.
        """
        outputs: dict[int, TokenOutput] = {}
        for chunk in batch.pooled:
            sequence = self._sequences.get(chunk.sequence_id)
            if sequence is None:
                continue
            sequence.num_computed = chunk.end
            self.blocks.keep(sequence)
            if chunk.start == 0:  # also after a preemption, which restarts the sequence
                sequence.pooled = None
            add_pooled(sequence, sums.get(sequence.id))
            if chunk.samples:
                self._remove(sequence)
                outputs[sequence.id] = pooled_output(sequence)
        return outputs

    def check_integrity(self) -> None:
        """Raise AssertionError unless every page and every sequence is in exactly one place."""
        waiting = list(self._waiting)
        queued = [*self._running, *waiting]
        self.blocks.check_integrity(queued)
        if sorted(sequence.id for sequence in queued) != sorted(self._sequences):
            raise AssertionError(f"live sequences {sorted(self._sequences)} are not those queued: {queued}")
        if any(sequence.block_table for sequence in waiting) or self._waiting.size != len(waiting):
            raise AssertionError("a waiting sequence holds KV pages, or is not counted")
        if self.speculator is not None and not self.speculator.sequence_ids <= self._sequences.keys():
            raise AssertionError("proposals are prepared for sequences that have ended")
        if self._failures.keys() & self._sequences.keys():
            raise AssertionError("a failed sequence is still queued")

    # ── the next prompt ───────────────────────────────────────────────────────────────────────────────

    def _next_prompt(self, passed: set[int], budget: int, now: float, below: float) -> Sequence | None:
        """The next prompt to compute a chunk of, a running or a waiting one, of a priority number below `below`.
        `passed` are the ids that are in this step already, or are excluded from it."""
        rank, prompts = self._waiting.rank, self._running.prompts
        others = (s for s in prompts.values() if s.id not in passed and s.standing.priority < below)
        begun = min(others, key=rank, default=None)
        while (first := self._waiting.first(passed, below)) is not None and (
            begun is None or rank(first) < rank(begun)
        ):
            other = self.blocks.computed_by(first) if first.may_take_over else None
            if other is None:
                return first if self._start(first, budget, now) else begun
            # It will use the pages of the other sequence, which therefore goes first, before all that wait for it.
            passed.add(first.id)
            if other in prompts and other not in passed:
                return prompts[other]
        return begun

    def _start(self, sequence: Sequence, budget: int, now: float) -> bool:
        """Allocate a slot and pages, preempting lower priorities if necessary; False if none are available.

        Pages are allocated for all tokens at once, so a partly computed prompt never lacks pages.
        """
        if self.config.whole_prompts and len(sequence) > budget:
            return False
        while self.num_running >= self.config.max_num_seqs:
            if not self._preempt_below(sequence.standing.priority):
                return False
        if sequence.may_take_over:
            self.blocks.take_over(sequence)
        while not self.blocks.allocate(sequence, len(sequence)):
            if not self._preempt_below(sequence.standing.priority):
                self.blocks.free(sequence)
                return False
        self.blocks.begin(sequence)
        if sequence.started is None:
            sequence.started = now
            self.waits.add(now - sequence.arrived)
            if sequence.times is not None:
                sequence.times.started = now
            sequence.num_cached = sequence.num_charged = sequence.num_computed
            self.num_cached_tokens += sequence.num_cached
        self._waiting.remove(sequence)
        self._running.prompts[sequence.id] = sequence
        return True

    # ── room ──────────────────────────────────────────────────────────────────────────────────────────

    def _make_room(self) -> None:
        """Allocate the page of each generating sequence's newest token, preempting others or the sequence itself."""
        page, decoding = self.blocks.block_size, self._running.decoding
        short = [s for s in decoding.values() if len(s.token_ids) > len(s.block_table) * page]
        for sequence in short:
            while sequence.id in decoding and not self.blocks.allocate(sequence, len(sequence)):
                self._preempt(self._running.last())

    def _preempt_below(self, priority: int) -> bool:
        """Preempt a sequence of a lower priority. Returns False without one."""
        if not self._running or (last := self._running.last()).standing.priority <= priority:
            return False
        self._preempt(last)
        return True

    def _preempt(self, sequence: Sequence) -> None:
        self._stop(sequence)
        self._waiting.push(sequence)
        self.num_preemptions += 1
        if sequence.times is not None:
            sequence.times.preemptions += 1

    def _make_place(self, newcomer: Sequence, now: float) -> None:
        """Remove a sequence from a full queue for a new one. Raises QueueFull if its claim is the lowest."""
        self._expire(now)
        if self._waiting.size < self.config.max_queue:
            return
        victim = self._waiting.victim(newcomer)
        if victim is None:
            raise QueueFull(f"{self._waiting.size} requests are waiting already; try again later")
        self.fail(victim.id, QueueFull("another request needed this one's place in a full queue; try again later"))

    # ── ends ──────────────────────────────────────────────────────────────────────────────────────────

    def _expire(self, now: float) -> None:
        """End the sequences whose deadline has passed, and compute the next deadline."""
        if now < self._next_deadline:
            return
        for sequence in [s for s in self._sequences.values() if s.standing.deadline <= now]:
            self.fail(sequence.id, TooLate())
        self._next_deadline = min((s.standing.deadline for s in self._sequences.values()), default=inf)

    def _append(self, sequence: Sequence, sampled: Sampled) -> TokenOutput:
        if (error := appended(sequence, sampled.token_id)) is not None:
            return self._fail(sequence, error)
        self.served.charge_completion(sequence)
        self._running.decodes(sequence)
        reason = finish_reason(sequence, self.config.max_model_len)
        if reason is not None:
            self._remove(sequence)
        return token_output(sequence, sampled, reason)

    def _accept(self, sequence: Sequence, chunk: Chunk, result: Sampled) -> TokenOutput:
        """Record a chunk with proposals as if each accepted position had been a step of its own."""
        outputs: list[TokenOutput] = []
        for sampled in (*result.before, result):
            sequence.num_computed += 1
            self.blocks.keep(sequence)
            error = sampled.error
            outputs.append(self._append(sequence, sampled) if error is None else self._fail(sequence, error))
            if outputs[-1].ends:
                break
        self.blocks.trim(sequence)
        sequence.confirm(chunk.num_proposed, len(outputs) - 1)
        if self.speculator is not None:
            self.speculator.accepted(sequence, chunk.num_proposed, len(outputs) - 1)
        return joined_outputs(sequence, outputs)

    def _fail(self, sequence: Sequence, error: InferenceError) -> TokenOutput:
        self._remove(sequence)
        return TokenOutput(-1, error=error)

    def _remove(self, sequence: Sequence) -> None:
        del self._sequences[sequence.id]
        if self.speculator is not None:
            self.speculator.forget(sequence)
        if sequence.id in self._running:
            self._stop(sequence)
        else:
            self._waiting.remove(sequence)

    def _stop(self, sequence: Sequence) -> None:
        self._running.remove(sequence.id)
        self.blocks.free(sequence)
