"""How a copy is watched and replaced, on virtual time, over a worker that the test scripts."""

import asyncio
import itertools
from pathlib import Path

import numpy as np
import pytest

from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.instances.copy import FIRST_BACKOFF, LONGEST_BACKOFF, STABLE_SECONDS, Copy
from runtimes.tensor.instances.worker import Job, Listener
from runtimes.tensor.interfaces import (
    Batch,
    Device,
    InstanceEnded,
    InstanceLost,
    LoadReport,
    ModelLoadError,
    Tensors,
)

pytestmark = [pytest.mark.plain, pytest.mark.looptime]

JOB = Job("copy", "python", ModelConfig("model", "python"), Path(), Device())
OUTPUTS: Tensors = {"y": np.zeros(1)}
BATCH = Batch([OUTPUTS], [1])
TIMEOUT = 10.0


class Worker:
    """A worker that sends nothing unless the test makes it."""

    def __init__(self, listener: Listener, refusal: ModelLoadError | None) -> None:
        self.listener = listener
        self.refusal = refusal
        self.born = asyncio.get_running_loop().time()
        self.frames: list[str] = []

    async def load(self) -> LoadReport:
        if self.refusal is not None:
            raise self.refusal
        return LoadReport(pid=1)

    def submit(self, batch: Batch) -> None:
        self.frames.append("batch")

    def submit_stream(self, inputs: Tensors) -> None:
        self.frames.append("stream")

    def go_on(self) -> None:
        self.frames.append("go on")

    def stop(self) -> None:
        self.frames.append("stop")

    def abandon(self) -> None:
        self.frames.append("abandoned")

    async def aclose(self) -> None:
        self.frames.append("closed")


class Factory:
    """All workers of one copy. Those that are made while `refusal` is set cannot be loaded."""

    def __init__(self) -> None:
        self.made: list[Worker] = []
        self.refusal: ModelLoadError | None = None

    def __call__(self, job: Job, listener: Listener) -> Worker:
        self.made.append(Worker(listener, self.refusal))
        return self.made[-1]


async def loaded() -> tuple[Copy, Factory]:
    workers = Factory()
    copy = Copy(JOB, workers, TIMEOUT)
    await copy.load()
    return copy, workers


def is_ready(copy: Copy) -> bool:
    return copy.ready


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_a_batch_that_takes_too_long_is_lost_and_another_worker_is_ready_soon() -> None:
    copy, workers = await loaded()
    ends: list[Tensors | BaseException] = []
    again = asyncio.Event()
    copy.on_ready = again.set
    copy.start(BATCH, ends.append)
    await asyncio.sleep(TIMEOUT - 0.1)
    assert ends == []
    await asyncio.sleep(0.2)
    assert isinstance(ends[0], InstanceLost)
    assert workers.made[0].frames == ["batch", "abandoned"]
    assert not is_ready(copy)
    await again.wait()
    assert is_ready(copy)
    assert len(workers.made) == 2
    copy.start(BATCH, ends.append)
    workers.made[1].listener.answered(OUTPUTS)
    assert ends[1] is OUTPUTS
    await copy.aclose()


async def test_a_copy_without_a_replacement_reports_it_until_replaced() -> None:
    copy, workers = await loaded()
    stuck: list[float] = []
    again = asyncio.Event()
    copy.on_ready, copy.on_stuck = again.set, stuck.append
    workers.refusal = ModelLoadError("there is no memory")
    workers.made[0].listener.lost("died")
    await asyncio.sleep(20.0)
    assert stuck == [pytest.approx(seconds) for seconds in (1.6, 3.2, 6.4, 12.8)]
    workers.refusal = None
    await again.wait()
    assert is_ready(copy)
    assert len(stuck) == 4
    await copy.aclose()


async def test_time_is_counted_for_each_batch_anew_and_not_while_there_is_none() -> None:
    copy, workers = await loaded()
    ends: list[Tensors | BaseException] = []
    for _ in range(5):
        copy.start(BATCH, ends.append)
        await asyncio.sleep(TIMEOUT * 0.7)
        workers.made[0].listener.answered(OUTPUTS)
        await asyncio.sleep(TIMEOUT * 0.7)
    assert ends == [OUTPUTS] * 5
    await asyncio.sleep(TIMEOUT * 100)
    assert copy.restarts == 0
    await copy.aclose()


async def test_a_reader_that_pauses_has_all_the_time_and_a_model_that_is_silent_has_not() -> None:
    copy, workers = await loaded()
    got: list[Tensors] = []
    ends: list[BaseException | None] = []
    stream = copy.stream(OUTPUTS, got.append, ends.append)
    worker = workers.made[0]
    stream.pause()
    worker.listener.responded(OUTPUTS)
    await asyncio.sleep(TIMEOUT * 10)
    assert worker.frames == ["stream"]
    assert ends == []
    stream.resume()
    assert worker.frames == ["stream", "go on"]
    await asyncio.sleep(TIMEOUT + 0.1)
    assert isinstance(ends[0], InstanceLost)
    assert got == [OUTPUTS]
    await copy.aclose()


async def test_a_generator_that_does_not_end_when_it_is_stopped_is_lost() -> None:
    copy, workers = await loaded()
    ends: list[BaseException | None] = []
    stream = copy.stream(OUTPUTS, lambda _: None, ends.append)
    stream.stop()
    stream.stop()
    workers.made[0].listener.responded(OUTPUTS)  # it was on its way
    assert workers.made[0].frames == ["stream", "stop"]
    await asyncio.sleep(TIMEOUT + 0.1)
    assert isinstance(ends[0], InstanceLost)
    await copy.aclose()


async def test_pauses_between_attempts_grow_to_a_bound_and_are_short_again_after_a_stable_time() -> None:
    copy, workers = await loaded()
    workers.refusal = ModelLoadError("not now")
    workers.made[0].listener.lost("was killed")
    while len(workers.made) < 14:
        await asyncio.sleep(1)
    births = [worker.born for worker in workers.made[1:]]
    pauses = [later - earlier for earlier, later in itertools.pairwise(births)]
    assert pauses == pytest.approx([min(LONGEST_BACKOFF, FIRST_BACKOFF * 2**n) for n in range(1, 13)], abs=0.05)
    workers.refusal = None
    while not is_ready(copy):
        await asyncio.sleep(1)
    await asyncio.sleep(STABLE_SECONDS + 1)
    lost_at = now()
    workers.made[-1].listener.lost("was killed")
    while not is_ready(copy):
        await asyncio.sleep(0.01)
    assert now() - lost_at == pytest.approx(FIRST_BACKOFF, abs=0.05)
    await copy.aclose()


@pytest.mark.parametrize("answers", [True, False])
async def test_only_one_that_has_answered_is_replaced_soon_however_often(answers: bool) -> None:
    copy, workers = await loaded()
    pauses = []
    for _ in range(4):
        copy.start(BATCH, lambda result: None)
        if answers:
            workers.made[-1].listener.answered(OUTPUTS)
        lost_at = now()
        workers.made[-1].listener.lost("was killed")
        while not is_ready(copy):
            await asyncio.sleep(0.01)
        pauses.append(now() - lost_at)
    expected = [FIRST_BACKOFF * (1 if answers else 2**n) for n in range(4)]
    assert pauses == pytest.approx(expected, abs=0.05)
    await copy.aclose()


async def test_while_it_is_replaced_whatever_comes_is_lost_at_once() -> None:
    copy, workers = await loaded()
    workers.made[0].listener.lost("was killed")
    ends: list[object] = []
    copy.start(BATCH, ends.append)
    copy.stream(OUTPUTS, ends.append, ends.append)
    await asyncio.sleep(0)
    assert [type(end) for end in ends] == [InstanceEnded, InstanceEnded]
    await copy.aclose()


async def test_closing_ends_pending_work_and_replacements() -> None:
    copy, workers = await loaded()
    ends: list[object] = []
    copy.start(BATCH, ends.append)
    await copy.aclose()
    await copy.aclose()
    assert isinstance(ends[0], InstanceEnded)
    assert workers.made[0].frames == ["batch", "closed"]
    copy, workers = await loaded()
    workers.made[0].listener.lost("was killed")
    await asyncio.sleep(0)
    await copy.aclose()
    await asyncio.sleep(LONGEST_BACKOFF)
    assert len(workers.made) == 1
    assert not copy.ready
