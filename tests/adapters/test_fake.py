"""The fake keeps the contract of an adapter, on virtual time."""

import asyncio

import pytest

from adapters.call import Call
from adapters.errors import BackendError, DeadlineError, InferenceError, TransportError, UpstreamTimeout
from adapters.fake import FakeAdapter, Script
from adapters.requests import ChatRequest
from adapters.types import Deadline, Usage
from adapters.wire.openai.request_codec import OpenAIPayload

pytestmark = pytest.mark.looptime

THREE = (b"a", b"b", b"c")


def request(*, stream: bool = True) -> ChatRequest:
    return ChatRequest(model="m", payload=OpenAIPayload(fields={}), stream=stream)


def within(total: float = 60.0, first_byte: float = 60.0, idle: float = 60.0) -> Call:
    return Call(Deadline(asyncio.get_running_loop().time() + total, first_byte, idle))


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_a_whole_answer() -> None:
    fake = FakeAdapter(Script(chunks=THREE, latency=5.0))
    answer = await fake.call(request(stream=False), within())
    assert (answer.body, answer.ended, now()) == (b"abc", True, 5.0)
    assert answer.usage == Usage(3, 2, exact=True)
    assert [call.end for call in fake.calls] == ["whole"]


async def test_a_stream_has_its_scripted_times() -> None:
    fake = FakeAdapter(Script(chunks=THREE, latency=5.0, gap=2.0))
    answer = await fake.call(request(), within())
    came = [(piece, now()) async for piece in answer]
    assert came == [(b"a", 5.0), (b"b", 7.0), (b"c", 9.0)]
    assert (answer.ended, answer.error, answer.usage.exact, fake.in_flight) == (True, None, True, 0)
    assert [call.end for call in fake.calls] == ["whole"]


async def test_scripts_play_in_order_and_the_last_for_ever() -> None:
    fake = FakeAdapter(Script(chunks=(b"1",)), Script(chunks=(b"2",)))
    bodies = [(await fake.call(request(stream=False), within())).body for _ in range(4)]
    assert bodies == [b"1", b"2", b"2", b"2"]


async def test_each_call_has_its_own_usage() -> None:
    fake = FakeAdapter()
    first = await fake.call(request(stream=False), within())
    first.usage.completion_tokens = 99
    assert (await fake.call(request(stream=False), within())).usage.completion_tokens == 2


@pytest.mark.parametrize(
    ("deadline", "expected", "at"),
    [
        ((60.0, 2.0, 60.0), UpstreamTimeout, 2.0),
        ((3.0, 60.0, 60.0), DeadlineError, 3.0),
        ((-1.0, 60.0, 60.0), DeadlineError, 0.0),
    ],
)
async def test_a_slow_start_fails_as_a_real_one(
    deadline: tuple[float, float, float], expected: type[InferenceError], at: float
) -> None:
    fake = FakeAdapter(Script(latency=10.0))
    with pytest.raises(expected):
        await fake.call(request(), within(*deadline))
    assert now() == at
    assert [call.end for call in fake.calls] == ["failed"]


async def test_a_slow_piece_fails_as_a_real_one() -> None:
    fake = FakeAdapter(Script(chunks=THREE, gap=10.0))
    answer = await fake.call(request(), within(idle=2.0))
    assert await anext(answer) == b"a"
    with pytest.raises(UpstreamTimeout):
        await anext(answer)
    assert (now(), answer.ended, isinstance(answer.error, UpstreamTimeout)) == (2.0, True, True)
    assert [call.end for call in fake.calls] == ["failed"]


async def test_a_fault_in_place_of_an_answer() -> None:
    fake = FakeAdapter(Script(latency=1.0, fault=BackendError("ill")), Script())
    with pytest.raises(BackendError):
        await fake.call(request(), within())
    assert now() == 1.0
    await fake.call(request(), within())
    assert [call.end for call in fake.calls] == ["failed", "running"]


@pytest.mark.parametrize("after", [1, 2, 3])
async def test_a_fault_after_some_pieces(after: int) -> None:
    fault = TransportError("cut")
    fake = FakeAdapter(Script(chunks=THREE, fault=fault, fault_after=after))
    answer = await fake.call(request(), within())
    assert tuple([await anext(answer) for _ in range(after)]) == THREE[:after]
    with pytest.raises(TransportError):
        await anext(answer)
    assert (answer.error, answer.usage.exact) == (fault, False)
    assert [call.end for call in fake.calls] == ["failed"]


async def test_a_call_that_is_cancelled() -> None:
    fake = FakeAdapter(Script(latency=10.0))
    call = asyncio.create_task(fake.call(request(), within()))
    await asyncio.sleep(1.0)
    assert fake.in_flight == 1
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert ([c.end for c in fake.calls], fake.in_flight) == (["cancelled"], 0)


async def test_a_stream_that_is_left() -> None:
    fake = FakeAdapter(Script(chunks=THREE))
    answer = await fake.call(request(), within())
    await anext(answer)
    assert fake.in_flight == 1
    await answer.aclose()
    await answer.aclose()
    assert ([c.end for c in fake.calls], fake.in_flight, answer.ended) == (["cancelled"], 0, True)


async def test_leaving_a_whole_stream_changes_nothing() -> None:
    fake = FakeAdapter(Script(chunks=THREE))
    answer = await fake.call(request(), within())
    assert [piece async for piece in answer] == list(THREE)
    await answer.aclose()
    assert ([c.end for c in fake.calls], answer.error) == (["whole"], None)


async def test_probe_and_aclose() -> None:
    fake = FakeAdapter()
    await fake.probe(1.0)
    fake.healthy = False
    with pytest.raises(UpstreamTimeout):
        await fake.probe(1.0)
    assert not fake.closed
    await fake.aclose()
    assert fake.closed
