"""The scheduler against a model of it: any prompts, any budgets, aborts at any moment."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule

from runtimes.llm.block_manager import BlockManager
from runtimes.llm.scheduler import PromptTooLong, QueueFull, Scheduler, SchedulerConfig
from runtimes.llm.sequence import Batch, Chunk, Sampled, SamplingParams, Sequence

STOP = 0


class SchedulerMachine(RuleBasedStateMachine):
    """`computed` is what a runner's cache would hold: (page, offset) → whose salt, and the tokens up to there."""

    sequences = Bundle("sequences")

    @initialize(
        num_blocks=st.integers(2, 12), block_size=st.integers(1, 4), seqs=st.integers(1, 5), spare=st.integers(0, 9),
        caching=st.booleans(),
    )  # fmt: skip
    def start(self, num_blocks: int, block_size: int, seqs: int, spare: int, caching: bool) -> None:
        self.blocks = BlockManager(num_blocks, block_size, caching=caching)
        config = SchedulerConfig(
            max_model_len=self.blocks.capacity, max_num_seqs=seqs, max_num_batched_tokens=seqs + spare, max_queue=6
        )
        self.scheduler = Scheduler(config, self.blocks)
        self.live: dict[int, Sequence] = {}
        self.ends: dict[int, int] = {}
        self.computed: dict[tuple[int, int], tuple[bytes, tuple[int, ...]]] = {}
        self.batch: Batch | None = None

    @rule(
        target=sequences, prompt=st.integers(1, 30), other=st.integers(0, 30), max_tokens=st.integers(1, 20),
        salt=st.sampled_from([b"", b"", b"another"]),
    )  # fmt: skip
    def add(self, prompt: int, other: int, max_tokens: int, salt: bytes) -> int:
        """Prompts are alike up to some token."""
        identity = len(self.ends)
        self.ends[identity] = 0
        tokens = [8 if position >= other else 9 for position in range(prompt)]
        params = SamplingParams(max_tokens=max_tokens)
        sequence = Sequence(identity, tokens, params, frozenset({STOP}), salt=salt)
        try:
            self.scheduler.add(sequence)
            self.live[identity] = sequence
        except PromptTooLong:
            assert prompt >= self.blocks.capacity
            self.ends[identity] += 1
        except QueueFull:
            assert self.scheduler.num_waiting >= 6
            self.ends[identity] += 1
        return identity

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
        self.batch = self.scheduler.schedule()
        config = self.scheduler.config
        assert self.batch.num_tokens <= config.max_num_batched_tokens
        assert len(self.batch.chunks) <= config.max_num_seqs
        assert bool(self.batch.chunks) == bool(self.live)
        ids = [chunk.sequence_id for chunk in self.batch.chunks]
        assert ids == sorted(ids)  # first come, first served
        assert ids == sorted(self.live)[: len(ids)]

    @precondition(lambda self: self.batch is not None)
    @rule(data=st.data())
    def run_and_update(self, data: st.DataObject) -> None:
        assert self.batch is not None
        self.run(self.batch)
        sampled = [chunk.sequence_id for chunk in self.batch.chunks if chunk.samples]
        tokens = {identity: data.draw(st.sampled_from([STOP, 5, 6, 7])) for identity in sampled}
        outputs = self.scheduler.update(self.batch, {identity: Sampled(token) for identity, token in tokens.items()})
        self.batch = None
        for identity, output in outputs.items():
            assert output.token_id == tokens[identity]
            if output.finish_reason is not None:
                sequence = self.live.pop(identity)
                self.ends[identity] += 1
                assert (output.finish_reason == "stop") == (output.token_id == STOP)
                assert 1 <= sequence.num_generated <= sequence.params.max_tokens
                assert len(sequence) <= self.blocks.capacity

    def run(self, batch: Batch) -> None:
        """Write a chunk's positions where its table says, then read all before it, as attention would."""
        size = self.blocks.block_size
        live = [chunk for chunk in batch.chunks if chunk.sequence_id in self.live]
        for chunk in live:
            for position in range(chunk.start, chunk.end):
                self.computed[chunk.block_table[position // size], position % size] = self.content(chunk, position)
        for chunk in live:
            for position in range(chunk.end):
                held = self.computed[chunk.block_table[position // size], position % size]
                assert held == self.content(chunk, position)

    def content(self, chunk: Chunk, position: int) -> tuple[bytes, tuple[int, ...]]:
        sequence = self.live[chunk.sequence_id]
        return sequence.salt, tuple(sequence.token_ids[: position + 1])

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
            batch = self.batch or self.scheduler.schedule()
            self.batch = None
            self.run(batch)
            outputs = self.scheduler.update(
                batch, {chunk.sequence_id: Sampled(5) for chunk in batch.chunks if chunk.samples}
            )
            for identity, output in outputs.items():
                if output.finish_reason is not None:
                    del self.live[identity]
                    self.ends[identity] += 1
        assert not self.live, "starved"
        assert set(self.ends.values()) <= {1}
        assert self.blocks.num_free == self.blocks.num_blocks
        assert not self.scheduler.has_work


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
