"""What a draft model does before a step: by made chances and costs, without a model or a clock."""

import random
from collections.abc import Callable
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtimes.llm.engine.block_manager import BlockManager
from runtimes.llm.engine.drafts import READ_FOR, READ_SHARE, DraftPlanner, PlannedDraft
from runtimes.llm.engine.results import accepted
from runtimes.llm.engine.scheduler import Scheduler
from runtimes.llm.engine.speculation import Speculation, Speculator
from runtimes.llm.engine.step_budget import SchedulerConfig
from runtimes.llm.engine.step_costs import ALLOWANCE, FIRST_CREDIT
from runtimes.llm.sequence import Chunk, Sampled, SamplingParams, Sequence, StepBatch

pytestmark = pytest.mark.plain
PAGE = 16


def answer_of(identity: int, length: int) -> list[int]:
    draw = random.Random(identity)
    return [draw.randrange(1000) for _ in range(length)]


class Simulated:
    """A scheduler, and models that do no arithmetic. The draft's cache holds a digest of each text up to a place, in
    place of its keys and values, and is checked before it is used."""

    def __init__(self, *, tokens: int = 8, right: float = 1.0, blocks: int = 1024, seqs: int = 16, budget: int = 512):
        self.config = SchedulerConfig(
            max_model_len=min(1024, blocks * PAGE), max_num_seqs=seqs, max_num_batched_tokens=budget, max_queue=64
        )
        planner = DraftPlanner(
            tokens, max_model_len=self.config.max_model_len, max_num_batched_tokens=budget, num_blocks=blocks
        )
        self.planner = planner
        speculation = Speculation("draft_model", tokens=tokens, model="small")
        speculator = Speculator(speculation, self.config.max_model_len, planner)
        self.scheduler = Scheduler(self.config, BlockManager(blocks, PAGE), speculator)
        self.right = right
        self.cache: dict[tuple[int, int], int] = {}
        self.answers: dict[int, list[int]] = {}
        self.given: dict[int, list[int]] = {}
        self.prompts: dict[int, int] = {}
        self.draw = random.Random(0)
        self.most_read = 0
        self.read_cost = 0.0
        self.dearest = 0.0

    def add(self, identity: int, prompt: list[int], answer: int, max_tokens: int | None = None) -> None:
        self.answers[identity], self.given[identity] = answer_of(identity, answer), []
        self.prompts[identity] = len(prompt)
        self.scheduler.add(Sequence(identity, [*prompt], SamplingParams(max_tokens=max_tokens or answer)))

    def step(self, cost: Callable[[int, int, int], float] = lambda decodes, depth, proposed: 1.0) -> float:
        """One step; returns its seconds, by the sequences that decode, the rounds of the draft and the proposals."""
        batch = self.scheduler.schedule()
        drafts = self.planner.take()
        batch = batch.proposing({one.sequence.id: chunk for one in drafts if (chunk := self.drafted(one)) is not None})
        sampled = {}
        for chunk in batch.chunks:
            if chunk.samples:
                first = chunk.end - chunk.num_proposed - self.prompts[chunk.sequence_id]
                own = self.answers[chunk.sequence_id][first : first + chunk.num_proposed + 1]
                sampled[chunk.sequence_id] = accepted(chunk.token_ids[1:], [Sampled(token) for token in own])
        seconds = cost(batch.num_decodes, max((draft.count for draft in drafts), default=0), batch.num_proposed)
        if drafts:
            plain = cost(batch.num_decodes, 0, 0)
            read = sum(draft.newest.start - draft.start if draft.count else draft.end - draft.start for draft in drafts)
            seconds += self.read_cost * read
            self.dearest = max(self.dearest, seconds / plain - 1)
        for identity, output in self.scheduler.update(batch, sampled).items():
            self.given[identity] += [one.token_id for one in (*output.before, output)]
        self.scheduler.measured(batch, seconds)
        self.scheduler.check_integrity()
        return seconds if not self.prefills(batch) else 0.0

    @staticmethod
    def prefills(batch: StepBatch) -> bool:
        return batch.num_prompt_tokens > 0

    def drafted(self, draft: PlannedDraft) -> Chunk | None:
        """The chunk with proposals: the draft reads, checks what it has read before, and writes."""
        text, table = draft.sequence.token_ids, draft.newest.block_table
        proposed = []
        for place in range(draft.count):
            at = len(text) - self.prompts[draft.sequence.id] + place
            token = self.answers[draft.sequence.id][at]
            proposed.append(token if self.draw.random() < self.right else token + 1)
        whole = [*text, *proposed]
        digests = [*accumulate(whole, lambda before, token: hash((before, token)), initial=0)][1:]
        for place in range(draft.start):
            assert self.cache[table[place // PAGE], place % PAGE] == digests[place], "not what it has read"
        end = draft.end + max(0, draft.count - 1)
        for place in range(draft.start, end):
            self.cache[table[place // PAGE], place % PAGE] = digests[place]
        self.most_read = max(self.most_read, draft.end - draft.start)
        draft.state.computed = end
        return draft.sequence.speculation(proposed) if proposed else None

    def run(self, cost: Callable[[int, int, int], float] = lambda decodes, depth, proposed: 1.0) -> float:
        elapsed = 0.0
        while self.scheduler.has_work:
            elapsed += self.step(cost)
        assert self.given == {one: tokens[: len(self.given[one])] for one, tokens in self.answers.items()}
        assert not self.planner.sequence_ids
        return elapsed


def bound(plain: float, dearest: float, reading: float = 0.0) -> float:
    """The most that steps with drafts may last in all, in steps without: both allowances, what is lent, the first
    step, a last one of each credit that costs more than was left of it, and the rest of a text that is being read."""
    return plain * (1 + 2 * ALLOWANCE) + 5 * FIRST_CREDIT + 3 * dearest + reading


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    sequences=st.integers(1, 8), right=st.sampled_from([0.0, 0.3, 0.6, 0.9, 1.0]), round=st.floats(0, 2),
    each=st.floats(0, 0.5), read_cost=st.sampled_from([0.0, 0.02, 0.3]),
)  # fmt: skip
def test_whatever_drafts_cost_the_time_is_little_more_than_without(
    sequences: int, right: float, round: float, each: float, read_cost: float
) -> None:
    def cost(decodes: int, depth: int, proposed: int) -> float:
        return 1 + 0.05 * decodes + round * depth + each * proposed

    simulated = Simulated(right=right)
    simulated.read_cost = read_cost
    for identity in range(sequences):
        simulated.add(identity, answer_of(99, 40), 400)
    plain = 1 + 0.05 * sequences
    assert simulated.run(cost) <= plain * bound(399, simulated.dearest, 40 * read_cost)


@pytest.mark.parametrize("read_cost", [0.02, 0.2, 1.0])
@pytest.mark.parametrize("right", [0.0, 0.9])
def test_prompts_that_cost_much_to_read_are_seldom_read(right: float, read_cost: float) -> None:
    simulated = Simulated(right=right)
    simulated.read_cost = read_cost
    elapsed = 0.0
    for identity in range(40):
        simulated.add(identity, answer_of(1000 + identity, 600), 100)
        elapsed += simulated.run(lambda decodes, depth, proposed: 1 + 0.25 * depth)
    assert elapsed <= bound(40 * 99, simulated.dearest, 600 * read_cost)


def test_a_draft_of_the_size_of_its_model_costs_little_in_the_long_run() -> None:
    simulated = Simulated(right=1.0)
    simulated.read_cost = 0.1
    elapsed = 0.0
    for identity in range(60):
        simulated.add(identity, answer_of(1000 + identity, 400), 100)
        elapsed += simulated.run(lambda decodes, depth, proposed: 1 + depth)
    assert elapsed < 60 * 99 / 0.97


def test_a_step_that_another_program_delays_does_not_end_drafting() -> None:
    simulated = Simulated(right=0.9)
    simulated.add(0, [1, 2, 3], 900)
    for _ in range(50):
        simulated.step(lambda decodes, depth, proposed: 1 + 0.1 * depth)
    simulated.step(lambda decodes, depth, proposed: 5000.0)
    assert simulated.run(lambda decodes, depth, proposed: 1 + 0.1 * depth) < 850 / 1.5


def test_a_prompt_that_costs_more_than_is_lent_is_read_for_the_gain_of_its_answer() -> None:
    simulated = Simulated(right=0.95)
    simulated.read_cost = 0.05
    elapsed = 0.0
    for identity in range(10):
        simulated.add(identity, answer_of(1000 + identity, 400), 300)
        elapsed += simulated.run(lambda decodes, depth, proposed: 1 + 0.1 * depth)
    assert elapsed < 10 * 299 / 1.5


@pytest.mark.parametrize("sequences", [1, 4, 16])
def test_a_cheap_draft_that_is_mostly_right_makes_answers_faster(sequences: int) -> None:
    def cost(decodes: int, depth: int, proposed: int) -> float:
        return 1 + 0.02 * (decodes + proposed) + 0.1 * depth

    simulated = Simulated(right=0.9)
    for identity in range(sequences):
        simulated.add(identity, answer_of(99, 40), 300)
    assert simulated.run(cost) < 299 * (1 + 0.02 * sequences) / 1.5


def test_a_draft_that_becomes_right_is_used_again() -> None:
    simulated = Simulated(right=0.0)
    simulated.add(0, [1, 2, 3], 900)
    cost: Callable[[int, int, int], float] = lambda decodes, depth, proposed: 1 + 0.2 * depth  # noqa: E731
    for _ in range(300):
        simulated.step(cost)
    refused = simulated.scheduler.speculator
    assert refused is not None
    before = refused.num_proposed
    for _ in range(100):
        simulated.step(cost)
    assert refused.num_proposed - before <= 4
    simulated.right = 1.0
    steps = 0
    while simulated.scheduler.has_work:
        simulated.step(cost)
        steps += 1
    assert steps < 450


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(), right=st.sampled_from([0.3, 0.8, 1.0]), blocks=st.integers(12, 40), budget=st.sampled_from([16, 64])
)
def test_the_draft_reads_every_text_whole_through_preemptions_and_aborts(
    data: st.DataObject, right: float, blocks: int, budget: int
) -> None:
    simulated = Simulated(right=right, blocks=blocks, seqs=6, budget=budget, tokens=4)
    number = 0
    for _ in range(data.draw(st.integers(5, 40), "steps")):
        action = data.draw(st.sampled_from(["add", "step", "step", "step", "abort"]), "action")
        if action == "add" and number < 30:
            shared = answer_of(99, data.draw(st.integers(1, 60), "prompt"))
            simulated.add(number, shared, data.draw(st.integers(1, 60), "answer"))
            number += 1
        elif action == "abort" and number:
            simulated.scheduler.abort(data.draw(st.integers(0, number - 1), "which"))
        elif simulated.scheduler.has_work:
            simulated.step()
    simulated.run()
    assert simulated.scheduler.blocks.num_free == blocks


def test_a_long_prompt_is_read_in_parts_and_a_later_answer_finds_them() -> None:
    simulated = Simulated(budget=64)
    simulated.add(0, answer_of(99, 300), 60)
    simulated.run()
    assert simulated.most_read <= 64 // READ_SHARE + 1
    assert simulated.scheduler.speculator is not None
    assert simulated.scheduler.speculator.num_accepted > 0
    simulated.most_read = 0
    simulated.add(1, answer_of(99, 300), 30)
    while simulated.scheduler.has_work and not simulated.most_read:
        simulated.step()
    assert 0 < simulated.most_read <= 300 % PAGE + 2


def test_a_short_answer_is_not_worth_the_reading_of_a_long_prompt() -> None:
    for answer, reads in ((300 // READ_FOR - 2, False), (300 // READ_FOR + 10, True)):
        simulated = Simulated(budget=64)
        simulated.add(0, answer_of(99, 300), answer)
        simulated.run()
        assert (simulated.most_read > 0) == reads


def test_answers_of_a_form_are_not_drafted() -> None:
    class Form:
        free = False

        def mask(self) -> bytes:
            return b"\xff" * 128

        def advance(self, token_id: int) -> None:
            pass

    simulated = Simulated()
    simulated.answers[0], simulated.given[0], simulated.prompts[0] = answer_of(0, 50), [], 3
    simulated.scheduler.add(Sequence(0, [1, 2, 3], SamplingParams(max_tokens=50), constraint=Form()))
    simulated.run()
    assert not simulated.cache
