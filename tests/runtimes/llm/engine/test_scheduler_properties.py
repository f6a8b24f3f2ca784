"""The scheduler against a model of it: any prompts, any budgets, any standing, aborts at any moment."""

from math import inf

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule

from runtimes.llm.engine.block_manager import BlockManager
from runtimes.llm.engine.queue import PATIENCE, PromptTooLong, QueueFull, TooLate
from runtimes.llm.engine.results import accepted
from runtimes.llm.engine.scheduler import Scheduler
from runtimes.llm.engine.speculation import Speculation, Speculator
from runtimes.llm.engine.state_slots import StateSlots
from runtimes.llm.engine.step_budget import SchedulerConfig
from runtimes.llm.sequence import Chunk, Sampled, SamplingParams, Sequence, Standing, StepBatch, TokenOutput
from runtimes.llm.states import StateUse

pytestmark = pytest.mark.plain
STOP = 0
QUEUE = 6


class SchedulerMachine(RuleBasedStateMachine):
    """`computed` is what a runner's cache would hold: (page, offset) → whose salt, and the tokens up to there; and
    `remembered` the same of a recurrent model's slots."""

    sequences = Bundle("sequences")

    @initialize(
        num_blocks=st.integers(2, 12), block_size=st.integers(1, 4), seqs=st.integers(1, 5), spare=st.integers(0, 9),
        caching=st.booleans(), speculates=st.booleans(), slots=st.integers(0, 6),
    )  # fmt: skip
    def start(
        self, num_blocks: int, block_size: int, seqs: int, spare: int, caching: bool, speculates: bool, slots: int
    ) -> None:
        states, speculates = StateSlots(slots) if slots else None, speculates and not slots
        self.blocks = BlockManager(num_blocks, block_size, caching=caching, states=states)
        self.remembered: dict[int, tuple[bytes, tuple[int, ...]]] = {}
        config = SchedulerConfig(
            max_model_len=self.blocks.capacity, max_num_seqs=seqs, max_num_batched_tokens=seqs + spare, max_queue=QUEUE
        )
        speculator = Speculator(Speculation("ngram", tokens=4), config.max_model_len) if speculates else None
        self.scheduler = Scheduler(config, self.blocks, speculator)
        self.live: dict[int, Sequence] = {}
        self.ends: dict[int, int] = {}
        self.computed: dict[tuple[int, int], tuple[bytes, tuple[int, ...]]] = {}
        self.batch: StepBatch | None = None
        self.now = 0.0

    @rule(
        target=sequences, prompt=st.integers(1, 30), other=st.integers(0, 30), max_tokens=st.integers(1, 20),
        continued=st.integers(0, 3), tenant=st.sampled_from("aab"), priority=st.sampled_from([0, 0, 0, -1, 1]),
        seconds=st.sampled_from([inf, inf, 0, 1, 5]), share=st.sampled_from([1.0, 3.0]),
    )  # fmt: skip
    def add(
        self, prompt: int, other: int, max_tokens: int, continued: int, tenant: str, priority: int, seconds: float,
        share: float,
    ) -> int:  # fmt: skip
        """Prompts are alike up to some token; tenants share nothing."""
        identity = len(self.ends)
        self.ends[identity] = 0
        tokens = [8 if position >= other else 9 for position in range(prompt)]
        params, continued = SamplingParams(max_tokens=max_tokens), min(continued, prompt - 1, max_tokens - 1)
        sequence = Sequence(
            identity, tokens, params, frozenset({STOP}), salt=tenant.encode(), num_continued=continued,
            standing=Standing(tenant, share, priority, self.now + seconds),
        )  # fmt: skip
        try:
            self.scheduler.add(sequence, self.now)
            self.live[identity] = sequence
        except PromptTooLong:
            assert prompt >= self.blocks.capacity
            self.ends[identity] += 1
        except TooLate:
            assert seconds == 0
            self.ends[identity] += 1
        except QueueFull:
            assert self.scheduler.num_waiting >= QUEUE
            assert not any(one.standing.priority > priority for one in self.waiting() if not one.begun)
            self.ends[identity] += 1
        self.collect_failures()
        return identity

    def waiting(self) -> list[Sequence]:
        return [one for one in self.live.values() if not one.block_table]

    def collect_failures(self) -> None:
        for identity, error in self.scheduler.take_failures().items():
            sequence = self.live.pop(identity)
            self.ends[identity] += 1
            late = isinstance(error, TooLate)
            assert late == (sequence.standing.deadline <= self.now)
            assert late or (isinstance(error, QueueFull) and not sequence.begun)

    @rule()
    def time_passes(self) -> None:
        self.now += 1

    @rule(identity=sequences)
    def abort(self, identity: int) -> None:
        sequence = self.live.pop(identity, None)
        before = self.blocks.num_free
        others = {block for one in self.live.values() for block in one.block_table}
        held = len(set(sequence.block_table) - others) if sequence else 0
        self.scheduler.abort(identity)
        assert self.blocks.num_free == before + held
        if sequence:
            self.ends[identity] += 1

    @precondition(lambda self: self.batch is None)
    @rule()
    def schedule(self) -> None:
        waited = {one.id for one in self.waiting()}
        self.batch = self.scheduler.schedule(self.now)
        self.collect_failures()
        config, chunks = self.scheduler.config, self.batch.chunks
        assert self.batch.num_tokens <= config.max_num_batched_tokens
        assert self.scheduler.num_running <= config.max_num_seqs
        assert bool(chunks) == bool(self.live)
        scheduled = [self.live[chunk.sequence_id] for chunk in chunks]
        assert len({one.id for one in scheduled}) == len(scheduled)
        assert all(one.standing.deadline > self.now for one in self.live.values())
        began = [one for one in scheduled if one.id in waited]
        for one in self.waiting() if not self.blocks.caching else ():  # else it may wait for what another computes
            if one.id in waited:
                assert all(other.standing.priority <= one.standing.priority for other in began)
                assert all(
                    self.turn(other) < self.turn(one) for other in began if self.turn(other)[:2] == self.turn(one)[:2]
                )

    def turn(self, one: Sequence) -> tuple[int, str, float, int]:
        standing = one.standing
        return standing.priority, standing.tenant, min(standing.deadline, one.arrived + PATIENCE), one.id

    @precondition(lambda self: self.batch is not None)
    @rule(data=st.data())
    def run_and_update(self, data: st.DataObject) -> None:
        assert self.batch is not None
        self.run(self.batch)
        batch, self.batch = self.batch, None
        tokens = {
            chunk.sequence_id: [
                data.draw(st.sampled_from([STOP, 5, 6, 7, 7, *chunk.token_ids[1 + place : 2 + place] * 9]))
                for place in range(chunk.num_proposed + 1)
            ]
            for chunk in batch.chunks
            if chunk.samples
        }
        outputs = self.update(batch, tokens)
        proposed = {chunk.sequence_id: chunk.token_ids[1:] for chunk in batch.chunks if chunk.steps}
        for identity, output in outputs.items():
            together = (*output.before, output)
            assert [one.token_id for one in together] == tokens[identity][: len(together)]
            assert not any(one.ends for one in output.before)
            if identity in proposed:
                right = len(output.before)
                assert proposed[identity][:right] == tuple(tokens[identity][:right])
                rest = proposed[identity][right:]
                assert output.ends or not rest or rest[0] != output.token_id
            sequence = self.live[identity]
            assert len(sequence.block_table) * self.blocks.block_size - len(sequence) < self.blocks.block_size
            if output.finish_reason is not None:
                sequence = self.live.pop(identity)
                self.ends[identity] += 1
                assert (output.finish_reason == "stop") == (output.token_id == STOP)
                assert 1 <= sequence.num_generated <= sequence.params.max_tokens
                assert len(sequence) <= self.blocks.capacity

    def update(self, batch: StepBatch, tokens: dict[int, list[int]]) -> dict[int, TokenOutput]:
        if self.scheduler.speculator is not None and batch.num_decodes:
            # Proposals are free, so there are as many as fit.
            self.scheduler.speculator.costs.observe(batch.num_decodes, batch.num_proposed, 1.0)
        sampled = {
            chunk.sequence_id: accepted(chunk.token_ids[1:], [Sampled(one) for one in tokens[chunk.sequence_id]])
            for chunk in batch.chunks
            if chunk.samples
        }
        return self.scheduler.update(batch, sampled)

    def run(self, batch: StepBatch) -> None:
        """Write a chunk's positions by its table, then read all positions before it, as attention does."""
        size = self.blocks.block_size
        live = [chunk for chunk in batch.chunks if chunk.sequence_id in self.live]
        for chunk in live:
            for position in range(chunk.start, chunk.end):
                self.computed[chunk.block_table[position // size], position % size] = self.content(chunk, position)
        for chunk in live:
            for position in range(chunk.end):
                held = self.computed[chunk.block_table[position // size], position % size]
                assert held == self.content(chunk, position)
        for chunk in batch.chunks:
            assert (chunk.state is None) == (self.blocks.states is None)
            if chunk.state is not None and chunk.sequence_id in self.live:
                self.run_state(chunk, chunk.state)
            elif chunk.state is not None:  # aborted since, but computed all the same
                self.remembered |= {slot: (b"", ()) for _, slot in chunk.state.ends}

    def run_state(self, chunk: Chunk, use: StateUse) -> None:
        """Every chunk begins with the state of all tokens before it, and copies are of their positions."""
        if use.source is None:
            assert chunk.start == 0
        else:
            assert self.remembered[use.source] == self.content(chunk, chunk.start - 1)
        others = [one.state for one in (self.batch.chunks if self.batch else ()) if one is not chunk]
        assert use.source not in [slot for other in others if other is not None for _, slot in other.ends]
        assert use.ends[-1][0] == chunk.end
        for position, slot in use.ends:
            assert chunk.start < position <= chunk.end
            self.remembered[slot] = self.content(chunk, position - 1)

    def content(self, chunk: Chunk, position: int) -> tuple[bytes, tuple[int, ...]]:
        sequence = self.live[chunk.sequence_id]
        return sequence.salt, (*sequence.token_ids[: chunk.start], *chunk.token_ids)[: position + 1]

    @invariant()
    def every_page_has_its_owners(self) -> None:
        self.scheduler.check_integrity()
        held = {block for sequence in self.live.values() for block in sequence.block_table}
        assert self.blocks.num_free == self.blocks.num_blocks - len(held)

    def teardown(self) -> None:
        """Whatever is left comes to its end in bounded time."""
        if not hasattr(self, "scheduler"):
            return
        for _ in range(2000):
            if not self.live:
                break
            batch = self.batch or self.scheduler.schedule(self.now)
            self.batch = None
            self.collect_failures()
            self.run(batch)
            outputs = self.update(batch, {one.sequence_id: [5] * (one.num_proposed + 1) for one in batch.chunks})
            for identity, output in outputs.items():
                if output.finish_reason is not None:
                    del self.live[identity]
                    self.ends[identity] += 1
        assert not self.live, "starved"
        assert set(self.ends.values()) <= {1}
        assert self.blocks.num_free == self.blocks.num_blocks
        assert not self.scheduler.has_work


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
