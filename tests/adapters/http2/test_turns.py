"""No connection holds the loop: one turn cuts a bounded number of its frames and begins as few calls."""

import asyncio
import random

import pytest

from adapters.http2 import frames
from adapters.http2.accepted import Limits
from adapters.http2.call import GrpcCall
from adapters.http2.frames import END_HEADERS, END_STREAM, TURN_FRAMES, frame
from adapters.http2.status import Code
from tests.adapters.http1.raw import until
from tests.adapters.http2.peer import GREETING, block, connected, framed, request
from tests.adapters.http2.served import Methods, serving
from tests.support.turns import Turns, flood, most_seconds

pytestmark = pytest.mark.processes  # they measure the CPU time of turns

CALLS = 85_000
PATIENCE_TURNS = 40


def calls(count: int, head: bytes, message: bytes = b"") -> bytes:
    """Whole calls of one connection, one after the other."""
    return GREETING + b"".join(
        frame(frames.HEADERS, END_HEADERS, number, head) + frame(frames.DATA, END_STREAM, number, framed(message))
        for number in range(1, 2 * count, 2)
    )


async def test_calls_of_one_connection_delay_no_other() -> None:
    answered = 0
    methods = Methods()

    async def refuse(call: GrpcCall) -> None:
        nonlocal answered
        if call.path.endswith("/Flood"):
            answered += 1
            turns.note()
            call.fail(Code.UNAUTHENTICATED, "no key")
        else:
            await methods(call)

    async with serving(refuse) as served, connected(served.port) as neighbour:
        waited, data = [], calls(CALLS, block("/test.Service/Flood"))
        with Turns() as turns, flood(served.port, data):
            await until(lambda: answered > 0)
            for _ in range(30):
                before = turns.number
                await neighbour.request(request(), framed(b"hello"))
                waited.append(turns.number - before)
        assert answered > 30
        assert turns.busiest <= TURN_FRAMES // 2 + 1
        assert sorted(waited)[len(waited) // 2] < PATIENCE_TURNS
        assert turns.longest < most_seconds()


async def test_heads_that_take_long_to_decode_share_turns() -> None:
    """Each head changes the table, so that none is known from before."""
    seen = 0

    async def note(call: GrpcCall) -> None:
        nonlocal seen
        seen += 1
        call.reply(await call.unary())

    data = bytearray(GREETING)
    for number in range(1, 601, 2):
        head = block("/test.Service/Echo", *[(b"x-%d-%d" % (number, i), b"v" * 100) for i in range(100)])
        data += frame(frames.HEADERS, END_HEADERS, number, head)
        data += frame(frames.DATA, END_STREAM, number, framed(b""))
    async with serving(note) as served:
        with Turns() as turns, flood(served.port, bytes(data)):
            await until(lambda: seen == 300)
        assert turns.longest < most_seconds()


async def test_frames_that_wait_are_bounded_and_the_socket_is_not_read() -> None:
    async with serving(Methods(), Limits(max_streams=10**6)) as served:
        most = 0
        with flood(served.port, calls(CALLS, block("/test.Service/Nobody"))):
            connection = await served.accepted()
            while connection in served.server.connections and connection._last < 20_000:
                most = max(most, len(connection._rest))
                await asyncio.sleep(0)
        assert 0 < most < 1024 * 1024


@pytest.mark.parametrize("seed", range(4))
async def test_any_mix_of_frames_is_answered_in_short_turns(seed: int) -> None:
    """Messages of several calls in pieces of any size, between frames that carry no data."""
    rng = random.Random(seed)
    head, received, sent = block("/test.Service/Measure"), [], []
    data = bytearray(GREETING)
    for number in range(1, 2 * rng.randrange(1, 600), 2):
        message = framed(rng.randbytes(rng.choice([0, 1, 100, 5000])))
        sent.append(len(message) - 5)
        data += frame(frames.HEADERS, END_HEADERS, number, head)
        step = rng.choice([1, 3, 50, 16_000]) if len(message) < 200 else rng.choice([50, 16_000])
        for at in range(0, len(message), step):
            data += frame(frames.DATA, END_STREAM if at + step >= len(message) else 0, number, message[at : at + step])
        if rng.random() < 0.2:
            data += rng.choice([frame(frames.PING, 0, 0, bytes(8)), frame(frames.PRIORITY, 0, number, bytes(5))])

    async def measure(call: GrpcCall) -> None:
        received.append(len(await call.unary()))
        call.fail(Code.OK, "")

    async with serving(measure) as served:
        with Turns() as turns, flood(served.port, bytes(data)):
            await until(lambda: len(received) == len(sent))
        assert sorted(received) == sorted(sent)
        assert turns.longest < most_seconds()


async def test_a_message_in_tiny_frames_is_read_in_short_turns() -> None:
    size = 100_000
    message = framed(bytes(2 * size))
    pieces = [message[at : at + 2] for at in range(0, len(message), 2)]
    data = b"".join(
        frame(frames.DATA, END_STREAM if i == len(pieces) - 1 else 0, 1, piece) for i, piece in enumerate(pieces)
    )
    received: list[int] = []

    async def measure(call: GrpcCall) -> None:
        received.append(len(await call.unary()))
        call.reply(b"")

    async with serving(measure) as served:
        head = frame(frames.HEADERS, END_HEADERS, 1, block("/test.Service/Measure"))
        with Turns() as turns, flood(served.port, GREETING + head + data):
            await until(lambda: received != [])
        assert received == [2 * size]
        assert turns.longest < most_seconds()
