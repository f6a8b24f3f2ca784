from typing import Any

import pytest

from runtimes.llm.block_manager import BlockManager
from runtimes.llm.scheduler import PromptTooLong, QueueFull, Scheduler, SchedulerConfig
from runtimes.llm.sequence import Batch, Sampled, SamplingParams, Sequence, TokenOutput

STOP = 2


def make_scheduler(
    *, num_blocks: int = 64, block_size: int = 4, max_model_len: int = 64, seqs: int = 8,
    budget: int = 16, queue: int = 99, caching: bool = False,
) -> Scheduler:  # fmt: skip
    config = SchedulerConfig(
        max_model_len=max_model_len, max_num_seqs=seqs, max_num_batched_tokens=budget, max_queue=queue
    )
    return Scheduler(config, BlockManager(num_blocks, block_size, caching=caching))


def add(scheduler: Scheduler, identity: int, prompt: int, max_tokens: int = 8) -> Sequence:
    params = SamplingParams(max_tokens=max_tokens)
    sequence = Sequence(identity, list(range(100, 100 + prompt)), params, frozenset({STOP}))
    scheduler.add(sequence)
    return sequence


def step(scheduler: Scheduler, token: int = 50) -> tuple[Batch, dict[int, TokenOutput]]:
    batch = scheduler.schedule()
    return batch, scheduler.update(
        batch, {chunk.sequence_id: Sampled(token) for chunk in batch.chunks if chunk.samples}
    )


def shape(batch: Batch) -> list[tuple[int, int, int, bool]]:
    return [(chunk.sequence_id, chunk.start, len(chunk.token_ids), chunk.samples) for chunk in batch.chunks]


def test_a_long_prompt_is_cut_and_shares_steps_with_decodes() -> None:
    scheduler = make_scheduler(budget=16)
    add(scheduler, 0, prompt=5)
    add(scheduler, 1, prompt=30)
    assert shape(step(scheduler)[0]) == [(0, 0, 5, True), (1, 0, 11, False)]
    assert shape(step(scheduler)[0]) == [(0, 5, 1, True), (1, 11, 15, False)]
    add(scheduler, 2, prompt=20)
    assert shape(step(scheduler)[0]) == [(0, 6, 1, True), (1, 26, 4, True), (2, 0, 11, False)]


def test_a_chunk_carries_its_tokens_and_pages() -> None:
    scheduler = make_scheduler(budget=16, block_size=4)
    sequence = add(scheduler, 0, prompt=20)
    chunk = scheduler.schedule().chunks[0]
    assert chunk.token_ids == tuple(range(100, 116))
    assert chunk.block_table == tuple(sequence.block_table)
    assert len(chunk.block_table) == 5
    assert chunk.params is sequence.params


def test_no_more_sequences_run_than_may() -> None:
    scheduler = make_scheduler(seqs=2)
    for identity in range(3):
        add(scheduler, identity, prompt=2, max_tokens=2)
    assert [chunk.sequence_id for chunk in step(scheduler)[0].chunks] == [0, 1]
    step(scheduler)  # 0 and 1 end here
    assert [chunk.sequence_id for chunk in step(scheduler)[0].chunks] == [2]


def test_the_newest_gives_way_when_pages_run_out_and_resumes_with_its_answer() -> None:
    scheduler = make_scheduler(num_blocks=4, block_size=4, max_model_len=16, budget=16)
    old, new = add(scheduler, 0, prompt=8), add(scheduler, 1, prompt=7)
    step(scheduler)
    batch, _ = step(scheduler)  # the old one needs its third page, all four are taken
    assert shape(batch) == [(0, 8, 1, True)]
    assert scheduler.num_preemptions == 1
    assert (new.block_table, new.num_computed, new.num_generated) == ([], 0, 1)
    scheduler.check_integrity()
    scheduler.abort(old.id)
    # Its prompt and the token it had: 8 in all, computed anew.
    assert shape(step(scheduler)[0]) == [(1, 0, 8, True)]
    assert new.num_generated == 2


def test_a_preempted_sequence_comes_back_before_those_that_wait() -> None:
    scheduler = make_scheduler(num_blocks=4, block_size=4, max_model_len=16, budget=16)
    old = add(scheduler, 0, prompt=8)
    add(scheduler, 1, prompt=7)
    add(scheduler, 2, prompt=1)
    step(scheduler)
    step(scheduler)
    assert scheduler.num_preemptions == 1
    # One page is free, enough for sequence 2, but nobody overtakes.
    assert shape(step(scheduler)[0]) == [(0, 9, 1, True)]
    scheduler.abort(old.id)
    assert [chunk.sequence_id for chunk in step(scheduler)[0].chunks] == [1, 2]


@pytest.mark.parametrize(
    ("token", "max_tokens", "finish_reason"), [(STOP, 8, "stop"), (STOP, 1, "stop"), (50, 1, "length"), (50, 2, None)]
)
def test_finish_reasons(token: int, max_tokens: int, finish_reason: str | None) -> None:
    scheduler = make_scheduler()
    add(scheduler, 0, prompt=3, max_tokens=max_tokens)
    output = step(scheduler, token)[1][0]
    assert (output.token_id, output.finish_reason) == (token, finish_reason)
    assert scheduler.has_work == (finish_reason is None)


def test_the_context_end_is_a_length() -> None:
    scheduler = make_scheduler(max_model_len=8)
    sequence = add(scheduler, 0, prompt=6, max_tokens=99)
    assert step(scheduler)[1][0].finish_reason is None
    assert step(scheduler)[1][0].finish_reason == "length"
    assert len(sequence) == 8


def test_a_prompt_that_leaves_no_room_is_refused_with_the_numbers() -> None:
    scheduler = make_scheduler(max_model_len=8)
    with pytest.raises(PromptTooLong) as caught:
        add(scheduler, 0, prompt=8)
    assert (caught.value.length, caught.value.limit) == (8, 7)
    add(scheduler, 1, prompt=7)


def test_the_queue_is_bounded_and_refusal_leaves_no_trace() -> None:
    scheduler = make_scheduler(queue=2)
    add(scheduler, 0, prompt=1)
    add(scheduler, 1, prompt=1)
    with pytest.raises(QueueFull):
        add(scheduler, 2, prompt=1)
    scheduler.check_integrity()
    step(scheduler)
    add(scheduler, 3, prompt=1)


def test_abort_between_schedule_and_update_frees_at_once_and_gives_no_output() -> None:
    scheduler = make_scheduler()
    add(scheduler, 0, prompt=9)
    batch = scheduler.schedule()
    scheduler.abort(0)
    assert scheduler.blocks.num_free == scheduler.blocks.num_blocks
    assert scheduler.update(batch, {0: Sampled(50)}) == {}
    assert not scheduler.has_work
    scheduler.abort(0)  # twice is once


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"max_model_len": 1}, "max_model_len"),
        ({"seqs": 0}, "max_num_seqs"),
        ({"queue": 0}, "max_queue"),
        ({"seqs": 17, "budget": 16}, "max_num_batched_tokens"),
        ({"num_blocks": 2, "block_size": 4, "max_model_len": 9}, "KV cache holds 8"),
    ],
)
def test_bounds_that_contradict_each_other_are_refused(bounds: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_scheduler(**bounds)


# ── prefix cache ──────────────────────────────────────────────────────────────────────────────────────


def test_a_prompt_that_begins_like_another_computes_only_the_rest() -> None:
    scheduler = make_scheduler(budget=32, block_size=4, caching=True)
    add(scheduler, 0, prompt=10, max_tokens=1)
    step(scheduler)
    later = add(scheduler, 1, prompt=14)
    batch, outputs = step(scheduler)
    assert shape(batch) == [(1, 8, 6, True)]  # two full pages of four were there
    assert (outputs[1].cached_tokens, later.num_cached, scheduler.num_cached_tokens) == (8, 8, 8)
    assert scheduler.blocks.num_free == 60
    scheduler.check_integrity()


def test_the_same_prompt_again_has_its_last_token_computed() -> None:
    scheduler = make_scheduler(budget=32, block_size=4, caching=True)
    for identity in (0, 1):
        add(scheduler, identity, prompt=8, max_tokens=1)
        batch, _ = step(scheduler)
        assert shape(batch)[0][1:] == ((0, 8, True) if identity == 0 else (4, 4, True))


def test_those_that_run_share_pages_and_the_last_one_gives_them_back() -> None:
    scheduler = make_scheduler(budget=64, block_size=4, num_blocks=16, caching=True)
    one = add(scheduler, 0, prompt=9)
    step(scheduler)
    other = add(scheduler, 1, prompt=9)
    step(scheduler)
    assert one.block_table[:2] == other.block_table[:2]
    assert scheduler.blocks.num_free == 16 - 4
    scheduler.abort(0)
    assert scheduler.blocks.num_free == 16 - 3
    scheduler.check_integrity()
    scheduler.abort(1)
    assert scheduler.blocks.num_free == 16


def test_another_salt_finds_nothing() -> None:
    scheduler = make_scheduler(budget=32, block_size=4, caching=True)
    add(scheduler, 0, prompt=10, max_tokens=1)
    step(scheduler)
    scheduler.add(Sequence(1, list(range(100, 110)), SamplingParams(max_tokens=1), salt=b"another tenant"))
    assert shape(step(scheduler)[0]) == [(1, 0, 10, True)]


def test_what_was_used_longest_ago_makes_room_from_its_end() -> None:
    scheduler = make_scheduler(budget=32, block_size=4, num_blocks=4, max_model_len=16, caching=True)
    add(scheduler, 0, prompt=12, max_tokens=1)
    step(scheduler)  # three pages are kept, one is free
    scheduler.add(Sequence(1, [7] * 7, SamplingParams(max_tokens=1)))
    step(scheduler)  # takes the free one and the last of those kept
    add(scheduler, 2, prompt=12, max_tokens=1)
    assert shape(step(scheduler)[0]) == [(2, 8, 4, True)]
    scheduler.check_integrity()


def test_a_preempted_sequence_finds_what_it_had_computed() -> None:
    scheduler = make_scheduler(num_blocks=5, block_size=4, max_model_len=16, budget=16, caching=True)
    old, new = add(scheduler, 0, prompt=8), add(scheduler, 1, prompt=8)
    new.token_ids[:] = list(range(200, 208))
    step(scheduler)
    assert shape(step(scheduler)[0])[0] == (0, 8, 1, True)
    assert scheduler.num_preemptions == 1
    scheduler.abort(old.id)
    assert shape(step(scheduler)[0]) == [(1, 8, 1, True)]
