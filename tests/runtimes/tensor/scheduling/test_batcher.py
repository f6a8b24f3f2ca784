"""Requests joined into batches, in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from adapters.errors import BackendError, CallerError, CapacityError, DeadlineError, TooLarge, Unavailable
from adapters.tensors import Inference, Tensor, split_bytes
from runtimes.tensor.configuration.model_config import DynamicBatching, ModelConfig, QueuePolicy, TensorSpec
from runtimes.tensor.interfaces import InvalidRow, RowsFailed, Tensors
from runtimes.tensor.scheduling.batcher import Batcher
from runtimes.tensor.scheduling.outlet import UnfinishedOutputs
from runtimes.tensor.scheduling.queue import LONGEST_WAIT
from tests.runtimes.tensor.scheduling.instances import (
    MURDER,
    POISON,
    VirtualInstance,
    double,
    model,
    request,
    values_of,
)

pytestmark = [pytest.mark.plain, pytest.mark.looptime]


def now() -> float:
    return asyncio.get_running_loop().time()


async def outcome(future: asyncio.Future[Any]) -> Any:
    """Its values, or the code of its error."""
    try:
        return values_of(await future)
    except (BackendError, CallerError, CapacityError, DeadlineError) as error:
        return error.code


async def test_one_request_is_computed_at_once_and_answered_with_its_rows() -> None:
    instance = VirtualInstance()
    batcher = Batcher(model(), [instance])
    assert values_of(await batcher.infer(request(1, 2))) == [2, 4]
    assert now() == pytest.approx(0.010)
    assert instance.batches == [[2]]


async def test_requests_of_one_turn_of_the_loop_form_one_batch() -> None:
    instance = VirtualInstance()
    batcher = Batcher(model(), [instance])
    answers = await asyncio.gather(*[batcher.infer(request(n)) for n in range(8)])
    assert [values_of(answer) for answer in answers] == [[2 * n] for n in range(8)]
    assert instance.batches == [[1] * 8]


async def test_requests_gather_while_the_copy_is_busy() -> None:
    instance = VirtualInstance()
    batcher = Batcher(model(max_batch_size=4), [instance])
    first = batcher.infer(request(0))
    await asyncio.sleep(0.001)
    others = [batcher.infer(request(n)) for n in range(1, 7)]
    await asyncio.gather(first, *others)
    assert instance.batches == [[1], [1] * 4, [1] * 2]


async def test_without_dynamic_batching_each_request_runs_alone_and_two_copies_run_two() -> None:
    copies = [VirtualInstance("copy-0"), VirtualInstance("copy-1")]
    batcher = Batcher(model(batching=None), copies)
    await asyncio.gather(*[batcher.infer(request(n)) for n in range(4)])
    assert [copy.batches for copy in copies] == [[[1], [1]], [[1], [1]]]
    assert now() == pytest.approx(0.020)


async def test_a_model_without_a_batch_dimension_gets_requests_as_they_are() -> None:
    instance = VirtualInstance()
    batcher = Batcher(model(max_batch_size=0, dims=(-1, 2)), [instance])
    answers = await asyncio.gather(*[batcher.infer(request(n, n)) for n in range(3)])
    assert [values_of(answer) for answer in answers] == [[0, 0], [2, 2], [4, 4]]
    assert instance.batches == [[1], [1], [1]]


async def test_a_request_that_is_too_large_for_a_batch_is_cut_and_joined() -> None:
    instance = VirtualInstance()
    batcher = Batcher(model(max_batch_size=4), [instance])
    assert values_of(await batcher.infer(request(*range(10)))) == [2 * n for n in range(10)]
    assert instance.batches == [[4], [4], [2]]
    with pytest.raises(TooLarge, match="batch-size must be <= 1024"):
        batcher.infer(request(*range(1025)))


async def test_a_cut_request_fails_whole_and_its_other_parts_leave_the_queue() -> None:
    instance = VirtualInstance()
    batcher = Batcher(model(max_batch_size=2), [instance])
    future = batcher.infer(request(POISON, 1, 2, 3, 4, 5, 6, 7))
    with pytest.raises(BackendError, match="poisoned"):
        await future
    await batcher.drain()
    assert len(instance.batches) <= 2
    cancelled = batcher.infer(request(*range(8)))
    await asyncio.sleep(0.001)
    cancelled.cancel()
    await batcher.drain()
    assert batcher.waiting == batcher.computing == 0


async def test_shapes_do_not_mix_and_none_waits_behind_another() -> None:
    instance = VirtualInstance()
    batcher = Batcher(model(dims=(-1,)), [instance])
    requests = [batcher.infer(request(n, width=1 + n % 2)) for n in range(8)]
    assert [values_of(answer) for answer in await asyncio.gather(*requests)] == [[2 * n] for n in range(8)]
    assert instance.batches == [[1] * 4, [1] * 4]


async def test_lengths_are_padded_so_that_more_are_alike_and_answers_cut_back() -> None:
    instance = VirtualInstance()
    batcher = Batcher(model(dims=(-1,), batching=DynamicBatching(pad_to={"IN": (4, 8)})), [instance])
    answers = await asyncio.gather(*[batcher.infer(request(n, width=n)) for n in range(1, 10)])
    assert [answer[0].shape for answer in answers] == [(1, n) for n in range(1, 10)]
    assert [values_of(answer) for answer in answers] == [[2 * n] for n in range(1, 10)]
    assert instance.batches == [[1] * 4, [1] * 4, [1]]


async def test_ragged_inputs_are_joined_end_to_end_and_their_rows_stay_with_their_request() -> None:
    seen = []

    def sums(inputs: Tensors) -> Tensors:
        seen.append(inputs["IN"].tolist())
        lengths = inputs["LENGTH"].reshape(-1)
        ends = lengths.cumsum()
        rows = [inputs["IN"][end - length : end].sum() for end, length in zip(ends, lengths, strict=True)]
        return {"OUT": np.array(rows, "<i4").reshape(-1, 1)}

    config = ModelConfig(
        name="sums",
        backend="test",
        inputs=(TensorSpec("IN", "INT32", (-1,), allow_ragged_batch=True), TensorSpec("LENGTH", "INT32", (1,))),
        outputs=(TensorSpec("OUT", "INT32", (1,)),),
        max_batch_size=4,
        dynamic_batching=DynamicBatching(),
    )

    def ragged(value: int, rows: int, width: int) -> Inference:
        data, lengths = np.full((rows, width), value, "<i4"), np.full((rows, 1), width, "<i4")
        tensors = [
            Tensor("IN", "INT32", data.shape, data.tobytes()),
            Tensor("LENGTH", "INT32", lengths.shape, lengths.tobytes()),
        ]
        return Inference("sums", inputs=tensors)

    batcher = Batcher(config, [VirtualInstance(compute=sums)])
    futures = [batcher.infer(ragged(1, 1, 3)), batcher.infer(ragged(2, 2, 1)), batcher.infer(ragged(5, 6, 2))]
    assert [await outcome(future) for future in futures] == [[3], [2, 2], [10] * 6]
    assert seen[0] == [1, 1, 1, 2, 2]


async def test_no_request_waits_forever_for_a_lost_copy() -> None:
    instance = VirtualInstance()
    batcher = Batcher(model(), [instance])
    instance.die(returns=False)
    assert await outcome(batcher.infer(request(1))) == "queue_timeout"
    assert now() == pytest.approx(LONGEST_WAIT, abs=0.1)


async def test_a_batch_is_filled_up_to_a_size_that_the_model_is_compiled_for() -> None:
    instance = VirtualInstance()
    batcher = Batcher(model(batching=DynamicBatching(allowed_batch_sizes=(1, 4, 8))), [instance])
    futures = [batcher.infer(request(n)) for n in range(3)]
    answers = await asyncio.gather(*futures)
    assert [getattr(future, "device_seconds", 0) for future in futures] == [pytest.approx(0.010 / 4)] * 3
    assert [values_of(answer) for answer in answers] == [[0], [2], [4]]
    assert instance.batches == [[1, 1, 1, 1]]


async def test_only_requested_outputs_are_returned() -> None:
    def both(inputs: Tensors) -> Tensors:
        return {"OUT": inputs["IN"] * 2, "NEG": -inputs["IN"]}

    config = model()
    batcher = Batcher(config, [VirtualInstance(compute=both)])
    (output,) = await batcher.infer(request(1, outputs=["OUT"]))
    assert output.name == "OUT"


# ── failures ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("bad", [{0}, {7}, {2, 5}, set(range(8))])
async def test_a_bad_row_fails_its_own_request_only(bad: set[int]) -> None:
    instance = VirtualInstance()
    batcher = Batcher(model(), [instance])
    futures = [batcher.infer(request(POISON if n in bad else n)) for n in range(8)]
    assert [await outcome(future) for future in futures] == ["model_failed" if n in bad else [2 * n] for n in range(8)]
    assert len(instance.batches) <= 2 * 8 - 1


async def test_the_queue_continues_after_half_a_batch_is_abandoned() -> None:
    batcher = Batcher(model(max_batch_size=2), [VirtualInstance()])
    futures = [batcher.infer(request(value)) for value in (POISON, 1, 2)]
    await asyncio.sleep(0.015)  # the first half is computed again, the second is to follow
    futures[1].cancel()
    assert await outcome(futures[0]) == "model_failed"
    assert await asyncio.wait_for(outcome(futures[2]), 1) == [4]


async def test_rows_that_a_model_fails_alone_need_no_second_try() -> None:
    def some(inputs: Tensors) -> Tensors:
        raise RowsFailed({"OUT": inputs["IN"] * 2}, {1: "row 1 is too long", 2: InvalidRow("row 2 is no picture")})

    instance = VirtualInstance(compute=_raised(some))
    batcher = Batcher(model(), [instance])
    futures = [batcher.infer(request(n)) for n in range(4)]
    assert [await outcome(future) for future in futures] == [[0], "model_failed", "model_rejects_request", [6]]
    assert isinstance(futures[2].exception(), CallerError)
    assert instance.batches == [[1, 1, 1, 1]]


async def test_rows_of_different_lengths_end_with_the_longest_of_their_own_request() -> None:
    words, scores = TensorSpec("WORDS", "BYTES", (-1,)), TensorSpec("SCORES", "FP32", (-1, 2))
    counts = TensorSpec("COUNT", "INT32", ())
    config = replace(model(), outputs=(words, scores, counts), counted={"WORDS": "COUNT", "SCORES": "COUNT"})

    def lengths(inputs: Tensors) -> Tensors:
        count = inputs["IN"][:, 0].astype(np.int32)
        shape = len(count), max(count)
        return {"WORDS": np.full(shape, b"w", object), "SCORES": np.ones((*shape, 2), np.float32), "COUNT": count}

    batcher = Batcher(config, [VirtualInstance(compute=lengths)])
    futures = [batcher.infer(request(n)) for n in (2, 0, 3)]
    shapes = [{one.name: one.shape for one in await future} for future in futures]
    for count, own in zip((2, 0, 3), shapes, strict=True):
        assert own == {"WORDS": (1, count), "SCORES": (1, count, 2), "COUNT": (1,)}
    assert [len(one.data) for one in await futures[0] if one.name == "SCORES"] == [16]


async def test_parts_of_a_request_are_filled_up_to_the_longest_of_all() -> None:
    words, scores = TensorSpec("WORDS", "BYTES", (-1,)), TensorSpec("SCORES", "FP32", (-1, 2))
    counts = TensorSpec("COUNT", "INT32", ())
    config = replace(
        model(max_batch_size=2), outputs=(words, scores, counts), counted={"WORDS": "COUNT", "SCORES": "COUNT"}
    )

    def lengths(inputs: Tensors) -> Tensors:
        count = inputs["IN"][:, 0].astype(np.int32)
        places = np.arange(max(count))[None] < count[:, None]
        ones = places.astype(np.float32)[..., None].repeat(2, axis=2)
        return {"WORDS": np.where(places, b"w", b"").astype(object), "SCORES": ones, "COUNT": count}

    batcher = Batcher(config, [VirtualInstance(compute=lengths)])
    rows = (2, 0, 3, 1, 0)
    answer = await batcher.infer(request(*rows))
    assert isinstance(answer, UnfinishedOutputs)
    by_name = {one.name: one for one in await answer.finished()}
    assert by_name["SCORES"].shape == (5, 3, 2)
    places = np.arange(3)[None] < np.array(rows)[:, None]
    np.testing.assert_array_equal(np.frombuffer(by_name["SCORES"].data, "<f4").reshape(5, 3, 2)[..., 0], places)
    expected = np.where(places, b"w", b"").astype(object)
    assert split_bytes(by_name["WORDS"].data, 15, "WORDS") == expected.reshape(-1).tolist()
    assert np.frombuffer(by_name["COUNT"].data, "<i4").tolist() == list(rows)


def _raised(compute: Any) -> Any:
    def run(inputs: Tensors) -> Any:
        try:
            return compute(inputs)
        except RowsFailed as failed:
            return failed

    return run


async def test_unreadable_outputs_fail_the_batch_and_not_the_batcher() -> None:
    answers = iter([lambda inputs: {"OUT": np.zeros(())}, double])
    instance = VirtualInstance(compute=lambda inputs: next(answers)(inputs))
    batcher = Batcher(model(), [instance])
    assert await outcome(batcher.infer(request(1))) == "model_failed"
    assert await outcome(batcher.infer(request(1))) == [2]


async def test_a_copy_that_dies_fails_those_on_it_and_the_queue_goes_on_with_its_replacement() -> None:
    instance = VirtualInstance()
    batcher = Batcher(model(max_batch_size=2), [instance])
    futures = [batcher.infer(request(n)) for n in (MURDER, 1, 2, 3)]
    assert [await outcome(future) for future in futures] == ["instance_lost", "instance_lost", [4], [6]]
    assert now() > 1.0


async def test_a_copy_that_dies_idle_fails_no_request() -> None:
    copies = [VirtualInstance("copy-0"), VirtualInstance("copy-1")]
    batcher = Batcher(model(), copies)
    copies[1].ready = False
    assert await outcome(batcher.infer(request(1))) == [2]
    copies[0].die()
    waits = batcher.infer(request(2))
    await asyncio.sleep(0.1)
    assert not waits.done()
    copies[1].return_()
    assert await outcome(waits) == [4]
    await asyncio.sleep(2)
    await asyncio.gather(*[batcher.infer(request(n)) for n in range(16)])
    assert copies[0].batches


# ── leaving early ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_caller_that_leaves_takes_its_row_out_of_the_batch() -> None:
    instance = VirtualInstance()
    batcher = Batcher(model(), [instance])
    first = batcher.infer(request(0))
    await asyncio.sleep(0.001)
    waiting = [batcher.infer(request(n)) for n in (1, 2, 3)]
    waiting[1].cancel()
    assert batcher.waiting == 2
    first.cancel()
    assert [await outcome(future) for future in (waiting[0], waiting[2])] == [[2], [6]]
    assert instance.values == [[0], [1, 3]]


async def test_a_deadline_ends_a_wait_and_a_computation() -> None:
    instance = VirtualInstance(seconds=lambda rows: 1.0)
    batcher = Batcher(model(max_batch_size=1), [instance])
    computed = batcher.infer(request(1), now() + 0.5)
    await asyncio.sleep(0)
    queued = batcher.infer(request(2), now() + 0.7)
    patient = batcher.infer(request(3), now() + 2.5)
    assert await outcome(computed) == "deadline_exceeded"
    assert now() == pytest.approx(0.5, abs=0.01)
    assert await outcome(queued) == "deadline_exceeded"
    assert now() == pytest.approx(0.7, abs=0.01)
    assert await outcome(patient) == [6]
    with pytest.raises(DeadlineError):
        batcher.infer(request(4), now())


async def test_a_request_that_would_be_late_is_refused_at_once() -> None:
    instance = VirtualInstance(seconds=lambda rows: 1.0)
    batcher = Batcher(model(max_batch_size=1), [instance])
    await batcher.infer(request(0))  # it is known now how long one takes
    held = [batcher.infer(request(n), now() + 3.4) for n in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(CapacityError) as refused:
        batcher.infer(request(9), now() + 3.5)
    assert refused.value.retry_after == pytest.approx(3.0)
    admitted = batcher.infer(request(9), now() + 5.5)
    urgent = batcher.infer(request(8), now() + 2.5)  # the first of all that wait, so there is time
    assert await outcome(urgent) == [16]
    assert await outcome(admitted) == [18]
    assert [await outcome(future) for future in held] == [[0], [2], "deadline_exceeded"]


async def test_a_timeout_of_the_request_itself_ends_its_wait_where_the_model_lets_it() -> None:
    instance = VirtualInstance(seconds=lambda rows: 1.0)
    policy = QueuePolicy(default_timeout=0.8, allow_timeout_override=True)
    batcher = Batcher(model(max_batch_size=1, batching=DynamicBatching(default_queue_policy=policy)), [instance])
    first = batcher.infer(request(1))
    await asyncio.sleep(0)
    short = batcher.infer(request(2, parameters={"timeout": 200_000}))
    long = batcher.infer(request(3, parameters={"timeout": 5_000_000}))
    assert await outcome(short) == "queue_timeout"
    assert now() == pytest.approx(0.2, abs=0.01)
    assert await outcome(long) == "queue_timeout"
    assert now() == pytest.approx(0.8, abs=0.01)
    assert await outcome(first) == [2]


async def test_a_full_queue_refuses_and_one_place_is_free_when_a_caller_leaves() -> None:
    policy = QueuePolicy(max_queue_size=2)
    batcher = Batcher(model(batching=DynamicBatching(default_queue_policy=policy)), [VirtualInstance()])
    running = batcher.infer(request(0))
    while batcher.waiting:
        await asyncio.sleep(0)
    waiting = [batcher.infer(request(n)) for n in (1, 2)]
    with pytest.raises(CapacityError, match="2 requests wait"):
        batcher.infer(request(3))
    waiting[0].cancel()
    again = batcher.infer(request(4))
    assert [await outcome(future) for future in (running, waiting[1], again)] == [[0], [4], [8]]


async def test_no_request_is_refused_while_a_copy_is_idle() -> None:
    policy = QueuePolicy(max_queue_size=2)
    instance = VirtualInstance()
    batcher = Batcher(model(batching=DynamicBatching(default_queue_policy=policy)), [instance])
    futures = [batcher.infer(request(n)) for n in range(4)]  # of one turn of the loop
    with pytest.raises(CapacityError, match="2 requests wait"):
        batcher.infer(request(4))
    assert [await outcome(future) for future in futures] == [[0], [2], [4], [6]]
    assert instance.values == [[0, 1], [2, 3]]


async def test_a_request_of_the_next_turn_joins_the_batch() -> None:
    instance = VirtualInstance()
    batcher = Batcher(model(batching=DynamicBatching()), [instance])
    first = batcher.infer(request(0))
    await asyncio.sleep(0)
    second = batcher.infer(request(1))
    await asyncio.gather(first, second)
    assert instance.values == [[0, 1]]


async def test_requests_fail_when_no_copy_can_be_replaced() -> None:
    copies = [VirtualInstance("a"), VirtualInstance("b")]
    batcher = Batcher(model(max_batch_size=1), copies)
    for copy in copies:
        copy.die(returns=False)
    waiting = batcher.infer(request(1))
    copies[0].on_stuck(5.0)
    await asyncio.sleep(0.5)
    assert not waiting.done()  # the other one may still come
    copies[1].on_stuck(3.0)
    with pytest.raises(Unavailable, match="cannot be replaced now") as caught:
        await waiting
    assert caught.value.retry_after == pytest.approx(3.0)
    with pytest.raises(Unavailable, match="cannot be replaced now"):
        batcher.infer(request(2))
    assert batcher.is_idle
    copies[0].return_()
    assert await batcher.infer(request(3)) is not None
    assert batcher.is_idle


async def test_urgent_priorities_go_first_and_the_others_still_come() -> None:
    instance = VirtualInstance()
    rules = DynamicBatching(priority_levels=3, default_priority_level=2)
    batcher = Batcher(model(max_batch_size=1, batching=rules), [instance])
    first = batcher.infer(request(0))
    await asyncio.sleep(0)
    futures = [batcher.infer(request(n, parameters={"priority": n})) for n in (3, 2, 9, 1)]
    await asyncio.gather(first, *futures)
    assert instance.values == [[0], [1], [2], [9], [3]]


async def test_order_is_preserved_where_configured() -> None:
    copies = [VirtualInstance("slow", lambda rows: 1.0), VirtualInstance("fast", lambda rows: 0.1)]
    rules = DynamicBatching(preserve_ordering=True)
    batcher = Batcher(model(max_batch_size=1, batching=rules), copies[::-1])
    ended: list[int] = []
    futures = [batcher.infer(request(n)) for n in range(6)]
    for n, future in enumerate(futures):
        future.add_done_callback(lambda _, n=n: ended.append(n))  # type: ignore[misc]
    futures[2].cancel()
    await asyncio.gather(*futures, return_exceptions=True)
    assert [n for n in ended if n != 2] == [0, 1, 3, 4, 5]
    assert now() == pytest.approx(1.0)


async def test_unloading_ends_waiting_requests_and_drains_running_ones() -> None:
    batcher = Batcher(model(max_batch_size=1), [VirtualInstance()])
    running, waiting = batcher.infer(request(1)), batcher.infer(request(2))
    await asyncio.sleep(0)
    await batcher.aclose()
    assert await outcome(waiting) == "model_unloading"
    await batcher.drain()
    assert await outcome(running) == [2]
    with pytest.raises(CapacityError):
        batcher.infer(request(3))
