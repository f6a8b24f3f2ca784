"""How many tokens are proposed: by made chances and costs, without a clock."""

import random
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtimes.llm.engine.block_manager import BlockManager
from runtimes.llm.engine.results import accepted
from runtimes.llm.engine.scheduler import Scheduler
from runtimes.llm.engine.speculation import MAX_TOKENS, Odds, Speculation, Speculator
from runtimes.llm.engine.step_budget import SchedulerConfig
from runtimes.llm.engine.step_costs import MARGIN, StepCosts, best_count, bucket
from runtimes.llm.sequence import Sampled, SamplingParams, Sequence, StepBatch, TokenOutput

pytestmark = pytest.mark.plain


@given(
    sequences=st.integers(1, 64), chances=st.lists(st.floats(0, 1), max_size=40),
    each=st.floats(0, 2), jump=st.floats(0, 5), at=st.integers(1, 40),
)  # fmt: skip
def test_the_count_of_proposals_is_that_of_the_most_tokens_a_second(
    sequences: int, chances: list[float], each: float, jump: float, at: int
) -> None:
    chances.sort(reverse=True)

    def added(proposed: int) -> float:
        return each * proposed + (jump if proposed >= at else 0)

    def rate(proposed: int) -> float:
        return (sequences + sum(chances[:proposed])) / (1 + added(proposed))

    best = best_count(sequences, chances, added)
    others = [rate(proposed) for proposed in range(1, len(chances) + 1)]
    if best:
        assert rate(best) == pytest.approx(max(others))
        assert rate(best) > sequences * MARGIN
    else:
        assert max(others, default=0) <= sequences * MARGIN * (1 + 1e-9)


@given(counts=st.lists(st.integers(1, 10**6), min_size=2, max_size=2))
def test_counts_are_measured_with_their_neighbours(counts: list[int]) -> None:
    low, high = sorted(counts)
    assert low <= bucket(low) <= bucket(high)
    assert bucket(low) <= low * 1.25
    assert bucket(bucket(low)) == bucket(low)


def test_costs_are_medians_and_a_number_without_one_has_that_of_the_next() -> None:
    costs = StepCosts()
    assert costs.plain(3) is None
    assert costs.plain_is_due(3)
    for seconds in (0.010, 0.010, 0.5):
        costs.observe(3, 0, seconds)
    assert costs.plain(3) == pytest.approx(0.010)
    assert not costs.plain_is_due(3)
    assert (costs.added(3)(4), costs.most(3)) == (0, 2)
    for seconds in (0.012, 0.9, 0.012):
        costs.observe(3, 4, seconds)
    assert costs.added(3)(4) == pytest.approx(0.2)
    assert costs.added(3)(8) == pytest.approx(0.4)
    assert costs.added(3)(2) == pytest.approx(0.1)
    assert costs.most(3) == 8
    assert (costs.plain(2), costs.most(2)) == (None, 2)


def test_a_step_without_proposals_is_measured_again_and_again() -> None:
    costs = StepCosts()
    costs.observe(2, 0, 1.0)
    steps = 0
    while not costs.plain_is_due(2):
        costs.observe(2, 3, 1.0)
        steps += 1
    assert steps == 64
    costs.observe(2, 0, 1.0)
    assert not costs.plain_is_due(2)


def test_an_unlucky_measurement_is_forgotten() -> None:
    costs = StepCosts()
    costs.observe(1, 0, 1.0)
    costs.observe(1, 5, 100.0)
    for _ in range(510):
        costs.observe(1, 0, 1.0)
    assert costs.added(1)(5) == 0


@given(hits=st.lists(st.booleans(), max_size=60), matched=st.integers(0, 50), number=st.integers(1, MAX_TOKENS))
def test_chances_fall_from_token_to_token_and_follow_the_hits(hits: list[bool], matched: int, number: int) -> None:
    shared = Odds()
    own = shared.branch()
    for hit in hits:
        own.observe(matched, hit)
    chances = own.chances(matched, number)
    assert len(chances) == number
    assert all(0 <= low <= high <= 1 for high, low in pairwise(chances))
    before = own.of(matched)
    own.observe(matched, True)
    assert own.of(matched) > before or before == 1
    assert shared.of(matched) == Odds().of(matched)


@pytest.mark.parametrize("tokens", [0, -1, MAX_TOKENS + 1, 1.5])
def test_numbers_out_of_range_are_refused(tokens: int) -> None:
    with pytest.raises(ValueError, match=f"1 to {MAX_TOKENS}"):
        Speculation("ngram", tokens=tokens)


# ── whole answers, in made time ───────────────────────────────────────────────────────────────────────

PROMPT = list(range(100, 400))


def scheduler_of(speculation: Speculation | None, max_model_len: int = 1024) -> Scheduler:
    config = SchedulerConfig(max_model_len=max_model_len, max_num_seqs=16, max_num_batched_tokens=512, max_queue=64)
    speculator = None if speculation is None else Speculator(speculation, config.max_model_len)
    return Scheduler(config, BlockManager(1024, 16), speculator)


def seconds_of(
    scheduler: Scheduler, sequences: int, answer: int, copies: float, cost: Callable[[int, int], float]
) -> tuple[float, dict[int, list[int]]]:
    """The time and the texts of answers that continue the prompt from its beginning, but for random other tokens."""
    texts = {}
    for identity in range(sequences):
        draw = random.Random(identity)
        texts[identity] = [PROMPT[i % 300] if draw.random() < copies else draw.randrange(1000) for i in range(answer)]
        params = SamplingParams(max_tokens=answer)
        scheduler.add(Sequence(identity, [*PROMPT], params))
    elapsed, given = 0.0, {identity: list[int]() for identity in texts}
    while scheduler.has_work:
        batch = scheduler.schedule()
        sampled = {}
        for chunk in batch.chunks:
            if chunk.samples:
                first = chunk.end - chunk.num_proposed - len(PROMPT)
                own = texts[chunk.sequence_id][first : first + chunk.num_proposed + 1]
                sampled[chunk.sequence_id] = accepted(chunk.token_ids[1:], [Sampled(token) for token in own])
        if batch.num_prompt_tokens == 0:
            seconds = cost(batch.num_decodes, batch.num_proposed)
            scheduler.measured(batch, seconds)
            elapsed += seconds
        for identity, output in scheduler.update(batch, sampled).items():
            given[identity] += [one.token_id for one in (*output.before, output)]
    scheduler.check_integrity()
    assert scheduler.speculator is None or not scheduler.speculator.sequence_ids
    assert given == texts
    return elapsed, given


@settings(max_examples=30, deadline=None)
@given(
    sequences=st.integers(1, 8), copies=st.sampled_from([0.0, 0.5, 0.8, 0.95, 1.0]),
    each=st.floats(0, 1.5), jump=st.floats(0, 4), at=st.integers(1, 30),
)  # fmt: skip
def test_whatever_proposals_cost_the_time_is_little_more_than_without(
    sequences: int, copies: float, each: float, jump: float, at: int
) -> None:
    def cost(decodes: int, proposed: int) -> float:
        return 1 + 0.05 * decodes + each * proposed + (jump if proposed >= at else 0)

    plain, _ = seconds_of(scheduler_of(None), sequences, 600, copies, cost)
    fast, _ = seconds_of(scheduler_of(Speculation("ngram")), sequences, 600, copies, cost)
    assert fast <= 1.15 * plain  # trials of proposals that turn out to be dear are few


@pytest.mark.parametrize("sequences", [1, 4, 16])
def test_answers_that_copy_the_prompt_are_several_times_as_fast(sequences: int) -> None:
    def cost(decodes: int, proposed: int) -> float:
        return 1 + 0.02 * (decodes + proposed)

    plain, _ = seconds_of(scheduler_of(None), sequences, 400, 0.98, cost)
    fast, _ = seconds_of(scheduler_of(Speculation("ngram")), sequences, 400, 0.98, cost)
    assert plain / fast > 2


def start(scheduler: Scheduler, max_tokens: int = 50) -> Sequence:
    """A sequence whose next tokens are proposed, after a step that was measured."""
    sequence = Sequence(0, [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2], SamplingParams(max_tokens=max_tokens))
    scheduler.add(sequence)
    for token in (3, 4):
        run(scheduler, [token])
    assert scheduler.speculator is not None
    scheduler.speculator.costs.observe(1, 8, 1.0)
    return sequence


def run(scheduler: Scheduler, tokens: list[int]) -> tuple[StepBatch, TokenOutput]:
    """A step that samples `tokens` at its positions."""
    batch = scheduler.schedule()
    (chunk,) = batch.chunks
    sampled = {0: accepted(chunk.token_ids[1:], [Sampled(token) for token in tokens])}
    output = scheduler.update(batch, sampled)[0]
    scheduler.measured(batch, 1.0)
    return batch, output


def test_refused_proposals_leave_no_trace() -> None:
    scheduler = scheduler_of(Speculation("ngram", tokens=6), max_model_len=64)
    sequence = start(scheduler)
    assert len(sequence) == 13
    free_before = scheduler.blocks.num_free
    batch, output = run(scheduler, [5, 6, 99, 8, 9, 1, 2])
    assert batch.chunks[0].token_ids == (4, 5, 6, 7, 8, 9, 1)
    assert [one.token_id for one in (*output.before, output)] == [5, 6, 99]
    assert (sequence.token_ids[-3:], sequence.num_computed) == ([5, 6, 99], 15)
    assert (len(sequence.block_table), scheduler.blocks.num_free) == (1, free_before)
    counted = scheduler.speculator
    assert counted is not None
    assert (counted.num_drafts, counted.num_proposed, counted.num_accepted) == (1, 6, 2)


def test_only_accepted_tokens_are_in_the_prefix_cache() -> None:
    scheduler = scheduler_of(Speculation("ngram", tokens=6), max_model_len=64)
    sequence = start(scheduler)
    run(scheduler, [5, 6, 99, 8, 9, 1, 2])
    text = [*sequence.token_ids]
    scheduler.abort(0)
    refused = Sequence(1, [*text[:15], 7, 8, 9], SamplingParams(max_tokens=1))
    scheduler.blocks.take_over(refused)
    assert refused.num_computed == 0
    scheduler = scheduler_of(Speculation("ngram", tokens=6), max_model_len=64)
    sequence = start(scheduler)
    run(scheduler, [5, 6, 7, 8, 9, 1, 2])
    again = Sequence(1, [*sequence.token_ids], SamplingParams(max_tokens=1))
    scheduler.blocks.take_over(again)
    assert again.num_computed == 16


def test_an_answer_ends_at_its_bound_within_accepted_tokens() -> None:
    scheduler = scheduler_of(Speculation("ngram", tokens=6), max_model_len=64)
    start(scheduler, max_tokens=5)
    batch, output = run(scheduler, [5, 6, 7])
    assert (batch.num_proposed, output.finish_reason, len(output.before)) == (2, "length", 2)


def test_no_page_is_taken_from_others_for_proposals() -> None:
    scheduler = Scheduler(
        SchedulerConfig(max_model_len=16, max_num_seqs=2, max_num_batched_tokens=32, max_queue=9),
        BlockManager(1, 16),
        Speculator(Speculation("ngram", tokens=6), 64),
    )
    start(scheduler)
    assert run(scheduler, [5, 6, 7, 8])[0].num_proposed == 3


def test_penalties_and_bans_of_each_position_count_the_proposals_before_it() -> None:
    params = SamplingParams(max_tokens=9, min_tokens=3, frequency_penalty=1.0)
    sequence = Sequence(0, [1, 2, 3], params, frozenset({0}))
    sequence.append(5)
    chunk = sequence.speculation([6, 5, 7])
    assert [step.end for step in chunk.steps] == [1, 2, 3, 4]
    assert [step.banned for step in chunk.steps] == [frozenset({0}), frozenset({0}), frozenset(), frozenset()]
    tallies = [dict(zip(step.tally.ids, step.tally.counts, strict=True)) for step in chunk.steps if step.tally]
    assert tallies == [{5: 1}, {5: 1, 6: 1}, {5: 2, 6: 1}, {5: 2, 6: 1, 7: 1}]
