"""Large requests and responses of models with a cache: hashes and copies run in threads."""

import asyncio
import threading
from typing import Any

import pytest

from adapters.tensors import Inference, Tensor
from runtimes.tensor.configuration.model_config import ResponseCache
from runtimes.tensor.off_loop import LARGE
from runtimes.tensor.schedulers import make_scheduler
from runtimes.tensor.scheduling import cached
from runtimes.tensor.scheduling.cached import Cached, ResponseStore
from runtimes.tensor.statistics import ModelStatistics
from tests.runtimes.tensor.scheduling.instances import VirtualInstance, model

pytestmark = pytest.mark.plain


def make(instance: VirtualInstance) -> tuple[Cached, ModelStatistics]:
    statistics = ModelStatistics()
    scheduler = make_scheduler(
        model(dims=(-1,), response_cache=ResponseCache(True, 0)),
        [instance],
        statistics,
        ResponseStore(1 << 28),
    )
    assert isinstance(scheduler, Cached)
    return scheduler, statistics


def request(length: int) -> Inference:
    return Inference("m", inputs=[Tensor("IN", "INT32", (1, length), bytes(4 * length))])


@pytest.mark.parametrize("length", [1, LARGE // 4 - 1, LARGE // 4, LARGE // 4 + 1])
async def test_hashes_and_copies_run_in_a_thread_if_they_are_large(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[bool] = []

    def watched(function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            threads.append(threading.current_thread() is not threading.main_thread())
            return function(*arguments)

        return call

    monkeypatch.setattr(cached, "digest", watched(cached.digest))
    monkeypatch.setattr(cached, "copies", watched(cached.copies))
    instance = VirtualInstance(seconds=lambda rows: 0.0)
    scheduler, statistics = make(instance)
    first = scheduler.infer(request(length))
    outputs = await first
    async with asyncio.timeout(300):
        while len(scheduler._store) == 0:
            await asyncio.sleep(0)
    again = await scheduler.infer(request(length))
    assert [bytes(tensor.data) for tensor in again] == [bytes(tensor.data) for tensor in outputs]
    assert (statistics.cache_hits, statistics.cache_misses) == (1, 1)
    assert threads == [4 * length >= LARGE] * 3
    assert getattr(first, "execution", None) is not None
    await scheduler.aclose()
    assert len(scheduler._store) == 0


async def test_a_large_request_that_is_cancelled_computes_nothing() -> None:
    instance = VirtualInstance(seconds=lambda rows: 0.0)
    scheduler, _ = make(instance)
    pending = scheduler.infer(request(LARGE))
    pending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pending
    assert instance.batches == []
    assert scheduler.is_idle
    await scheduler.aclose()
