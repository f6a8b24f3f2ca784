"""Cached answers, and requests that share one computation. In virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from adapters.errors import BackendError, CapacityError, DeadlineError, InferenceError
from adapters.tensors import Inference, RequestedOutput, Tensor
from runtimes.tensor.configuration.model_config import DynamicBatching, QueuePolicy, ResponseCache
from runtimes.tensor.schedulers import make_scheduler
from runtimes.tensor.scheduling.cached import OVERHEAD, PART, Cached, ResponseStore, copies, digest
from runtimes.tensor.statistics import ModelStatistics
from tests.runtimes.tensor.scheduling.instances import POISON, VirtualInstance, model, request, values_of

pytestmark = [pytest.mark.plain, pytest.mark.looptime]


def make(
    instance: VirtualInstance, ttl: float = 0, store: ResponseStore | None = None, **fields: Any
) -> tuple[Cached, ModelStatistics]:
    statistics = ModelStatistics()
    config = model(response_cache=ResponseCache(True, ttl), **fields)
    scheduler = make_scheduler(config, [instance], statistics, ResponseStore(1 << 20) if store is None else store)
    assert isinstance(scheduler, Cached)
    return scheduler, statistics


def now() -> float:
    return asyncio.get_running_loop().time()


async def outcome(future: asyncio.Future[Any]) -> Any:
    try:
        return values_of(await future)
    except InferenceError as error:
        return error.code


async def test_an_answer_is_given_again_until_it_is_too_old() -> None:
    instance = VirtualInstance()
    scheduler, statistics = make(instance, ttl=5)
    assert await outcome(scheduler.infer(request(1))) == [2]
    assert await outcome(scheduler.infer(request(1))) == [2]
    assert await outcome(scheduler.infer(request(2))) == [4]
    assert len(instance.batches) == 2
    assert (statistics.cache_hits, statistics.cache_misses) == (1, 2)
    await asyncio.sleep(5)
    assert await outcome(scheduler.infer(request(1))) == [2]
    assert len(instance.batches) == 3


async def test_any_relevant_difference_makes_another_request() -> None:
    tensors = [
        Tensor("a", "INT32", (2,), b"12345678"),
        Tensor("a", "INT32", (1, 2), b"12345678"),
        Tensor("a", "UINT32", (2,), b"12345678"),
        Tensor("b", "INT32", (2,), b"12345678"),
        Tensor("a", "INT32", (2,), b"12345679"),
    ]
    requests = [Inference("m", inputs=[tensor]) for tensor in tensors]
    requests += [Inference("m", inputs=tensors[:1], outputs=[RequestedOutput(n) for n in names]) for names in ("x", "xy", "yx")]  # fmt: skip  # noqa: E501
    requests.append(Inference("m", inputs=[tensors[0], tensors[3]]))
    assert len({digest(1, inference) for inference in requests}) == len(requests)
    assert digest(1, requests[0]) != digest(2, requests[0])
    swapped = Inference("m", inputs=[tensors[3], tensors[0]], parameters={"priority": 1})
    assert digest(1, swapped) == digest(1, requests[-1])


async def test_requests_that_are_alike_are_computed_once() -> None:
    instance = VirtualInstance()
    scheduler, _ = make(instance)
    answers = await asyncio.gather(*[outcome(scheduler.infer(request(3))) for _ in range(20)])
    assert answers == [[6]] * 20
    assert instance.batches == [[1]]


async def test_the_first_of_shared_requests_may_be_cancelled() -> None:
    instance = VirtualInstance()
    scheduler, _ = make(instance)
    first, second, third = (scheduler.infer(request(3)) for _ in range(3))
    await asyncio.sleep(0.005)
    first.cancel()
    third.cancel()
    assert await outcome(second) == [6]
    alone = scheduler.infer(request(4))
    waiting = scheduler.infer(request(5))
    waiting.cancel()
    assert await outcome(alone) == [8]
    assert instance.values == [[3], [4]]
    await scheduler.drain()


async def test_an_error_is_shared_and_not_cached() -> None:
    instance = VirtualInstance()
    scheduler, _ = make(instance)
    futures = [scheduler.infer(request(POISON)) for _ in range(3)]
    errors = await asyncio.gather(*futures, return_exceptions=True)
    assert all(isinstance(error, BackendError) for error in errors)
    assert len(set(map(id, errors))) == 3
    assert await outcome(scheduler.infer(request(POISON))) == "model_failed"
    assert len(instance.batches) == 2


async def test_a_shared_request_with_less_time_is_late_alone() -> None:
    instance = VirtualInstance(seconds=lambda rows: 1.0)
    scheduler, _ = make(instance, max_batch_size=1, batching=None)
    hurried = scheduler.infer(request(1), now() + 0.5)
    patient = scheduler.infer(request(1), now() + 5)
    later = scheduler.infer(request(1), now() + 0.7)
    assert await outcome(hurried) == "deadline_exceeded"
    assert now() == pytest.approx(0.5, abs=0.01)
    assert await outcome(later) == "deadline_exceeded"
    assert now() == pytest.approx(0.7, abs=0.01)
    assert await outcome(patient) == [2]
    with pytest.raises(DeadlineError):
        scheduler.infer(request(9), now())
    shared = scheduler.infer(request(8))
    with pytest.raises(DeadlineError):
        scheduler.infer(request(8), now())
    assert await outcome(shared) == [16]


async def test_a_timeout_of_the_first_request_does_not_fail_the_others() -> None:
    instance = VirtualInstance()
    rules = DynamicBatching(default_queue_policy=QueuePolicy(default_timeout=0.5))
    scheduler, _ = make(instance, max_batch_size=1, batching=rules)
    instance.die(returns=False)
    first = scheduler.infer(request(3))
    await asyncio.sleep(0.3)
    second = scheduler.infer(request(3))
    assert await outcome(first) == "queue_timeout"
    assert not second.done()
    instance.return_()
    assert await outcome(second) == [6]
    await scheduler.aclose()
    with pytest.raises(CapacityError):
        scheduler.infer(request(9))


async def test_the_store_stays_within_its_bytes_and_evicts_the_least_used() -> None:
    size = OVERHEAD + 8
    store = ResponseStore(PART * size)
    outputs = copies([Tensor("OUT", "INT32", (1, 2), memoryview(b"12345678"))])
    for n in range(PART):
        store.put(bytes([n]), 1, outputs, 0, 0.0)
    assert store.get(b"\0", 1e9) is not None
    store.put(b"new", 2, outputs, 0, 0.0)
    assert store.get(b"\1", 0.0) is None
    stored = store.get(b"\0", 0.0)
    assert stored is not None
    assert isinstance(stored[0].data, bytes)
    assert len(store) == PART
    assert store.size == PART * size
    store.put(b"large", 1, [Tensor("OUT", "INT32", (3,), b"123456789012")], 0, 0.0)
    assert store.get(b"large", 0.0) is None
    store.forget(1)
    assert len(store) == 1
    store.forget(2)
    assert store.size == 0


async def test_a_version_that_is_loaded_again_has_no_old_answers() -> None:
    store = ResponseStore(1 << 20)
    old, _ = make(VirtualInstance(), store=store)
    await old.infer(request(1))
    fresh = VirtualInstance()
    new, _ = make(fresh, store=store)
    await new.infer(request(1))
    assert len(fresh.batches) == 1
    await old.aclose()
    assert len(store) == 1
