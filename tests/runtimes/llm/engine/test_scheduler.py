from math import inf
from typing import Any

import pytest

from runtimes.llm.engine.block_manager import BlockManager
from runtimes.llm.engine.queue import PATIENCE, PromptTooLong, QueueFull, TooLate
from runtimes.llm.engine.scheduler import Scheduler
from runtimes.llm.engine.step_budget import SchedulerConfig
from runtimes.llm.sequence import Sampled, SamplingParams, Sequence, Standing, StepBatch, TokenOutput

pytestmark = pytest.mark.plain
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


def step(scheduler: Scheduler, token: int = 50) -> tuple[StepBatch, dict[int, TokenOutput]]:
    batch = scheduler.schedule()
    return batch, scheduler.update(
        batch, {chunk.sequence_id: Sampled(token) for chunk in batch.chunks if chunk.samples}
    )


def shape(batch: StepBatch) -> list[tuple[int, int, int, bool]]:
    return [(chunk.sequence_id, chunk.start, len(chunk.token_ids), chunk.samples) for chunk in batch.chunks]


def test_a_long_prompt_is_cut_and_shares_steps_with_decodes() -> None:
    scheduler = make_scheduler(budget=16)
    add(scheduler, 0, prompt=5)
    add(scheduler, 1, prompt=30)
    assert shape(step(scheduler)[0]) == [(0, 0, 5, True), (1, 0, 11, False)]
    assert shape(step(scheduler)[0]) == [(0, 5, 1, True), (1, 11, 15, False)]
    add(scheduler, 2, prompt=20)
    assert shape(step(scheduler)[0]) == [(0, 6, 1, True), (1, 26, 4, True), (2, 0, 11, False)]


def test_a_chunk_beside_a_sequence_that_generates_fits_into_the_time_of_a_step() -> None:
    scheduler = make_scheduler(budget=64, num_blocks=256, max_model_len=512)
    add(scheduler, 0, prompt=5, max_tokens=99)
    add(scheduler, 1, prompt=400)
    lengths = []
    for _ in range(9):
        batch, _ = step(scheduler)
        scheduler.measured(batch, 0.002 * batch.num_tokens)
        lengths.append(batch.num_tokens)
    assert lengths[0] == 64
    assert max(lengths[1:]) <= 1.1 * 0.05 / 0.002
    assert min(lengths[1:]) > 64 / 4
    scheduler.abort(0)
    assert step(scheduler)[0].num_tokens == 64


def test_a_chunk_carries_its_tokens_and_pages() -> None:
    scheduler = make_scheduler(budget=16, block_size=4)
    sequence = add(scheduler, 0, prompt=20)
    chunk = scheduler.schedule().chunks[0]
    assert chunk.token_ids == tuple(range(100, 116))
    assert chunk.block_table == sequence.block_table
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
    # One page is free, enough for sequence 2, but no sequence overtakes.
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


def test_another_salt_shares_no_prefix() -> None:
    scheduler = make_scheduler(budget=32, block_size=4, caching=True)
    add(scheduler, 0, prompt=10, max_tokens=1)
    step(scheduler)
    scheduler.add(Sequence(1, list(range(100, 110)), SamplingParams(max_tokens=1), salt=b"another tenant"))
    assert shape(step(scheduler)[0]) == [(1, 0, 10, True)]


def test_the_least_recently_used_prefix_is_evicted_from_its_end() -> None:
    scheduler = make_scheduler(budget=32, block_size=4, num_blocks=4, max_model_len=16, caching=True)
    add(scheduler, 0, prompt=12, max_tokens=1)
    step(scheduler)  # three pages are cached, one is free
    scheduler.add(Sequence(1, [7] * 7, SamplingParams(max_tokens=1)))
    step(scheduler)  # takes the free page and the last of the cached pages
    add(scheduler, 2, prompt=12, max_tokens=1)
    assert shape(step(scheduler)[0]) == [(2, 8, 4, True)]
    scheduler.check_integrity()


def test_a_preempted_sequence_reuses_its_computed_pages() -> None:
    scheduler = make_scheduler(num_blocks=5, block_size=4, max_model_len=16, budget=16, caching=True)
    old, new = add(scheduler, 0, prompt=8), add(scheduler, 1, prompt=8)
    new.token_ids[:] = list(range(200, 208))
    step(scheduler)
    assert shape(step(scheduler)[0])[0] == (0, 8, 1, True)
    assert scheduler.num_preemptions == 1
    scheduler.abort(old.id)
    assert shape(step(scheduler)[0]) == [(1, 8, 1, True)]


# ── prompts that begin alike ──────────────────────────────────────────────────────────────────────────


def alike(scheduler: Scheduler, identity: int, shared: int, own: int, **standing: Any) -> Sequence:
    tokens = [*range(100, 100 + shared), *[1000 + identity] * own]
    sequence = Sequence(identity, tokens, SamplingParams(max_tokens=8), standing=Standing(**standing))
    scheduler.add(sequence)
    return sequence


def test_a_shared_prefix_is_computed_once() -> None:
    scheduler = make_scheduler(budget=24, block_size=4, num_blocks=200, caching=True)
    for identity in range(5):
        alike(scheduler, identity, shared=40, own=3)
    assert shape(step(scheduler)[0]) == [(0, 0, 24, False)]  # the others wait for it
    assert shape(step(scheduler)[0])[0] == (0, 24, 19, True)
    later = [chunk for _ in range(2) for chunk in shape(step(scheduler)[0]) if chunk[0]]
    assert [chunk for chunk in later if chunk[1] == 40] == [(identity, 40, 3, True) for identity in range(1, 5)]
    assert scheduler.num_cached_tokens == 4 * 40
    scheduler.check_integrity()


def test_one_that_begins_otherwise_need_not_wait_for_them() -> None:
    scheduler = make_scheduler(budget=24, block_size=4, caching=True)
    alike(scheduler, 0, shared=12, own=1)
    alike(scheduler, 1, shared=12, own=2)
    scheduler.add(Sequence(2, [7] * 9, SamplingParams(max_tokens=8)))
    assert shape(step(scheduler)[0]) == [(0, 0, 13, True), (2, 0, 9, True)]
    assert (1, 12, 2, True) in shape(step(scheduler)[0])


def test_no_sequence_waits_for_pages_of_an_ended_one() -> None:
    scheduler = make_scheduler(budget=8, block_size=4, caching=True)
    first, other = alike(scheduler, 0, shared=16, own=1), alike(scheduler, 1, shared=16, own=1)
    step(scheduler)
    scheduler.abort(first.id)
    assert shape(step(scheduler)[0]) == [(other.id, 8, 8, False)]  # what was computed is found, the rest it computes
    scheduler.check_integrity()


def test_a_sequence_that_computes_for_an_urgent_one_is_first() -> None:
    scheduler = make_scheduler(budget=8, block_size=4, caching=True)
    slow = alike(scheduler, 0, shared=16, own=1, priority=2)
    step(scheduler)
    scheduler.add(Sequence(1, [7] * 30, SamplingParams(max_tokens=8), standing=Standing(priority=1)))
    urgent = alike(scheduler, 2, shared=16, own=1, priority=0)
    assert shape(step(scheduler)[0]) == [(slow.id, 8, 8, False)]
    assert shape(step(scheduler)[0])[0] == (urgent.id, 16, 1, True)


# ── whose turn it is ──────────────────────────────────────────────────────────────────────────────────


def add_standing(scheduler: Scheduler, identity: int, prompt: int = 4, now: float = 0.0, **standing: Any) -> Sequence:
    sequence = Sequence(identity, [identity] * prompt, SamplingParams(max_tokens=8), standing=Standing(**standing))
    scheduler.add(sequence, now)
    return sequence


def test_a_long_prompt_holds_up_no_other_tenants_short_one() -> None:
    scheduler = make_scheduler(budget=8, max_model_len=200)
    add_standing(scheduler, 0, prompt=80, tenant="long")
    step(scheduler)
    add_standing(scheduler, 1, tenant="short")
    assert shape(step(scheduler)[0]) == [(1, 0, 4, True), (0, 8, 4, False)]


def test_lower_numbers_go_first_and_take_the_place_of_higher_ones() -> None:
    scheduler = make_scheduler(seqs=2)
    for identity, priority in enumerate([1, 1, 0]):
        add_standing(scheduler, identity, priority=priority)
    assert [chunk.sequence_id for chunk in step(scheduler)[0].chunks] == [2, 0]
    add_standing(scheduler, 3, priority=-1)
    assert [chunk.sequence_id for chunk in step(scheduler)[0].chunks] == [2, 3]
    add_standing(scheduler, 4, priority=-1)
    assert [chunk.sequence_id for chunk in step(scheduler)[0].chunks] == [3, 4]
    assert scheduler.num_preemptions == 2
    scheduler.check_integrity()


def test_the_earliest_deadline_of_a_tenant_is_first() -> None:
    scheduler = make_scheduler(seqs=1)
    for identity, deadline in enumerate([inf, 30.0, 20.0]):
        add_standing(scheduler, identity, deadline=deadline)
    order = []
    for _ in range(3):
        [chunk] = step(scheduler)[0].chunks
        order.append(chunk.sequence_id)
        scheduler.abort(chunk.sequence_id)
    assert order == [2, 1, 0]


def test_without_a_deadline_one_waits_no_longer_than_patience_behind_those_that_have_one() -> None:
    scheduler = make_scheduler(seqs=1)
    add_standing(scheduler, 0, now=0.0)
    add_standing(scheduler, 1, now=PATIENCE - 10, deadline=PATIENCE + 1)
    assert [chunk.sequence_id for chunk in scheduler.schedule(PATIENCE - 10).chunks] == [0]


def test_when_pages_run_out_the_one_that_was_served_most_gives_way() -> None:
    scheduler = make_scheduler(num_blocks=6, block_size=4, max_model_len=24, budget=16)
    add_standing(scheduler, 0, prompt=8, tenant="much")
    step(scheduler)
    add_standing(scheduler, 1, prompt=4, tenant="little")
    add_standing(scheduler, 2, prompt=4, tenant="little", priority=1)
    step(scheduler)  # the first has its third page: one is left
    scheduler.served.charge("much", 50, 1.0)
    batch, _ = step(scheduler)
    assert [chunk.sequence_id for chunk in batch.chunks] == [0, 1]  # first the lowest priority
    for _ in range(3):
        step(scheduler)
    assert scheduler.num_preemptions == 1
    batch, _ = step(scheduler)
    assert [chunk.sequence_id for chunk in batch.chunks if chunk.samples] == [1]
    scheduler.check_integrity()


# ── ends ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_sequence_past_its_deadline_ends_at_once_waiting_or_running() -> None:
    scheduler = make_scheduler(seqs=1)
    running, waiting, patient = (add_standing(scheduler, i, deadline=at) for i, at in enumerate([9.0, 5.0, inf]))
    scheduler.update(scheduler.schedule(1.0), {waiting.id: Sampled(50)})
    assert [chunk.sequence_id for chunk in scheduler.schedule(4.9).chunks] == [waiting.id]
    assert [chunk.sequence_id for chunk in scheduler.schedule(5.0).chunks] == [running.id]
    assert [chunk.sequence_id for chunk in scheduler.schedule(9.5).chunks] == [patient.id]
    failures = scheduler.take_failures()
    assert failures.keys() == {0, 1}
    assert all(isinstance(error, TooLate) for error in failures.values())
    assert scheduler.take_failures() == {}
    scheduler.check_integrity()
    with pytest.raises(TooLate):
        add_standing(scheduler, 3, now=9.5, deadline=9.5)


def test_a_full_queue_makes_room_for_the_tenant_with_fewer_requests() -> None:
    scheduler = make_scheduler(queue=4)
    for identity in range(4):
        add_standing(scheduler, identity, tenant="flood")
    with pytest.raises(QueueFull) as caught:
        add_standing(scheduler, 4, tenant="flood")
    assert caught.value.retry_after == 1
    add_standing(scheduler, 5, tenant="quiet")
    assert scheduler.take_failures().keys() == {3}  # the newest of the flood
    add_standing(scheduler, 6, tenant="quiet")
    assert scheduler.take_failures().keys() == {2}
    with pytest.raises(QueueFull):  # both have their half
        add_standing(scheduler, 7, tenant="quiet")
    add_standing(scheduler, 8, tenant="heavy", share=4.0)
    assert scheduler.take_failures().keys() == {1}
    assert scheduler.num_waiting == 4
    scheduler.check_integrity()


def test_a_full_queue_makes_room_for_a_higher_priority() -> None:
    scheduler = make_scheduler(queue=2)
    add_standing(scheduler, 0, priority=1)
    add_standing(scheduler, 1, priority=2)
    add_standing(scheduler, 2, priority=1)
    assert scheduler.take_failures().keys() == {1}
    add_standing(scheduler, 3, priority=0)
    assert scheduler.take_failures().keys() == {2}
    with pytest.raises(QueueFull):
        add_standing(scheduler, 4, priority=1)


def test_a_begun_answer_stays_in_the_queue() -> None:
    scheduler = make_scheduler(num_blocks=4, block_size=4, max_model_len=16, budget=16, queue=1)
    add(scheduler, 0, prompt=8)
    step(scheduler)
    add(scheduler, 1, prompt=2)
    for _ in range(5):
        step(scheduler)
    assert scheduler.num_preemptions == 1
    with pytest.raises(QueueFull):
        add_standing(scheduler, 2, tenant="other", priority=-5)


def test_an_answer_that_is_carried_on_ends_where_it_would_have() -> None:
    scheduler = make_scheduler()
    params = SamplingParams(max_tokens=5)
    carried = Sequence(0, [7, 7, 7, 50, 50, 50], params, frozenset({STOP}), num_continued=3)
    scheduler.add(carried)
    assert (carried.num_prompt_tokens, carried.num_generated, carried.begun) == (3, 3, False)
    assert step(scheduler)[1][0].finish_reason is None
    assert step(scheduler)[1][0].finish_reason == "length"
    assert carried.num_generated == 5
