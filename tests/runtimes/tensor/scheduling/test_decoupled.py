"""Models that answer as often as they like, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
import pytest

from adapters.errors import BackendError, CallerError, CapacityError, DeadlineError
from runtimes.tensor.interfaces import InstanceLost, ModelFailed, Tensors
from runtimes.tensor.models.served_model import ModelScheduler
from runtimes.tensor.schedulers import make_scheduler
from runtimes.tensor.scheduling.responses import FEW, MOST, Responses
from tests.runtimes.tensor.scheduling.instances import POISON, VirtualInstance, model, request, values_of

pytestmark = [pytest.mark.plain, pytest.mark.looptime]


class Counting(VirtualInstance):
    """Answers n with 0 … n-1, a response every 10 ms; after POISON it fails."""

    def __init__(self, name: str = "copy-0") -> None:
        super().__init__(name)
        self.sent = 0
        self.streams: list[CountingStream] = []

    def stream(
        self, inputs: Tensors, response: Callable[[Tensors], None], done: Callable[[BaseException | None], None]
    ) -> CountingStream:
        assert all(stream.over for stream in self.streams), "one at a time"
        self.streams.append(CountingStream(self, int(inputs["IN"][0, 0]), response, done))
        return self.streams[-1]


class CountingStream:
    def __init__(
        self,
        owner: Counting,
        count: int,
        response: Callable[[Tensors], None],
        done: Callable[[BaseException | None], None],
    ) -> None:
        self.owner, self.count, self.response, self.done = owner, count, response, done
        self.paused = self.stopped = self.over = False
        self.sent = 0
        self._timer = asyncio.get_running_loop().call_later(0.01, self.step)

    def step(self) -> None:
        if self.count == POISON:
            self.end(ModelFailed("poisoned"))
        elif self.stopped or self.sent == self.count:
            self.end(None)
        else:
            if not self.paused:
                self.response({"OUT": np.full((1, 2), self.sent, "<i4")})
                self.sent += 1
            self._timer = asyncio.get_running_loop().call_later(0.01, self.step)

    def end(self, error: BaseException | None) -> None:
        self.over = True
        self._timer.cancel()
        self.done(error)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def stop(self) -> None:
        self.stopped = True


def make(instance: Counting) -> ModelScheduler:
    return make_scheduler(model(decoupled=True), [instance])


async def read(responses: Responses) -> list[int]:
    return [values_of(response)[0] async for response in responses]


async def test_there_are_as_many_responses_as_the_model_gives() -> None:
    scheduler = make(Counting())
    answers = await asyncio.gather(*[read(scheduler.stream(request(count))) for count in (3, 0, 1)])
    assert answers == [[0, 1, 2], [], [0]]
    with pytest.raises(CallerError, match="use a stream"):
        scheduler.infer(request(1))
    with pytest.raises(CallerError, match="at most 8"):
        scheduler.stream(request(*range(9)))


async def test_any_other_model_is_a_stream_of_one() -> None:
    scheduler = make_scheduler(model(), [VirtualInstance()])
    responses = scheduler.stream(request(4))
    assert await read(responses) == [8]
    assert await read(responses) == []
    assert responses.count == 1


async def test_a_slow_reader_pauses_the_model() -> None:
    instance = Counting()
    responses = make(instance).stream(request(50))
    await asyncio.sleep(1)
    assert instance.streams[0].sent == MOST
    for _ in range(MOST - FEW):
        await anext(responses)
    assert not instance.streams[0].paused
    rest = await read(responses)
    assert rest == list(range(MOST - FEW, 50))


async def test_a_reader_that_leaves_stops_the_model_and_the_next_has_its_turn() -> None:
    instance = Counting()
    scheduler = make(instance)
    first, second, third = (scheduler.stream(request(count)) for count in (1000, 1000, 2))
    assert values_of(await anext(first)) == [0]
    second.cancel()  # while it waits
    first.cancel()  # while it runs
    with pytest.raises(asyncio.CancelledError):
        await anext(first)
    assert await read(third) == [0, 1]
    assert instance.streams[0].sent < 5
    await scheduler.drain()
    assert scheduler.waiting == scheduler.computing == 0


async def test_a_deadline_stops_the_model() -> None:
    instance = Counting()
    scheduler = make(instance)
    responses = scheduler.stream(request(1000), asyncio.get_running_loop().time() + 0.055)
    got = [values_of(await anext(responses)) for _ in range(5)]
    assert got == [[0], [1], [2], [3], [4]]
    with pytest.raises(DeadlineError):
        await anext(responses)
    await scheduler.drain()
    assert instance.streams[0].stopped


async def test_a_failure_follows_the_responses_before_it() -> None:
    instance = Counting()
    scheduler = make(instance)
    with pytest.raises(BackendError, match="poisoned"):
        await read(scheduler.stream(request(POISON)))
    responses = scheduler.stream(request(1000))
    assert values_of(await anext(responses)) == [0]
    instance.ready = False
    instance.streams[-1].end(InstanceLost("killed"))
    with pytest.raises(CapacityError, match="died"):
        await read(responses)
    waiting = asyncio.ensure_future(read(scheduler.stream(request(2))))
    await asyncio.sleep(1)
    assert not waiting.done()
    instance.return_()
    assert await waiting == [0, 1]
