"""The budget of calls: charged before data is read, small while the reader is slow, and released at every end."""

import asyncio
import random
import tracemalloc
from collections.abc import Awaitable, Callable

import pytest

from adapters.http1.budget import COPIES, FREE_BYTES, Budget
from adapters.http2 import frames
from adapters.http2.accepted import Limits
from adapters.http2.call import GrpcCall
from adapters.http2.frames import END_HEADERS, END_STREAM, frame
from adapters.http2.inbox import MAX_CUT, Inbox
from adapters.http2.status import Code
from adapters.http2.stream import STREAM_WINDOW
from tests.adapters.http1.raw import until
from tests.adapters.http2.peer import GREETING, block, connected, framed, plainly, request
from tests.adapters.http2.served import Methods, Served, serving

MiB = 1024 * 1024


def budgeted(size: int) -> Limits:
    return Limits(max_held_by_all=COPIES * size)


async def idle(served: Served) -> None:
    await until(lambda: served.server.budget.held == 0)
    await served.quiet()


def reading(more: Callable[[GrpcCall], Awaitable[None]] | None = None) -> Callable[[GrpcCall], Awaitable[None]]:
    async def read(call: GrpcCall) -> None:
        if more is not None:
            await more(call)
        call.reply(b"%d" % len(await call.unary()))

    return read


async def test_a_message_is_reserved_when_its_prefix_arrives() -> None:
    async with serving(reading(), budgeted(2 * MiB)) as served, connected(served.port) as peer:
        stream_id = peer.h2.get_next_available_stream_id()
        peer.h2.send_headers(stream_id, request())
        peer.h2.send_data(stream_id, framed(bytes(MiB))[:40_000][:16_000])
        peer.flush()
        await until(lambda: served.server.budget.held >= COPIES * MiB)
        other = await peer.request(request(), framed(bytes(100)))
        assert other.status == 0
        async with connected(served.port) as second:
            refused = second.h2.get_next_available_stream_id()
            second.h2.send_headers(refused, request())
            second.h2.send_data(refused, framed(bytes(3 * MiB // 2))[:16_000])
            second.flush()
            assert (await second.answer(refused)).status == Code.UNAVAILABLE
        peer.h2.reset_stream(stream_id)
        peer.flush()
        await idle(served)


async def test_a_large_message_passes_small_windows() -> None:
    async with serving(reading()) as served:
        async with plainly(served.port) as peer:
            message = framed(bytes(20 * MiB))
            peer.send(GREETING + frame(frames.HEADERS, END_HEADERS, 1, block("/test.Service/Read")))
            sent, granted = 0, STREAM_WINDOW
            while sent < len(message):
                size = min(granted - sent, 500_000, len(message) - sent)
                if not size:
                    await asyncio.sleep(0)
                    granted = STREAM_WINDOW + grown(peer.frames)
                    continue
                last = sent + size == len(message)
                peer.send(frame(frames.DATA, END_STREAM if last else 0, 1, message[sent : sent + size]))
                sent += size
            await peer.until(lambda: any(kind == frames.DATA for kind, _, _ in peer.frames))
            assert sum(kind == frames.WINDOW_UPDATE and stream == 1 for kind, stream, _ in peer.frames) <= 2
        await idle(served)


def grown(seen: list[tuple[int, int, bytes]]) -> int:
    return sum(int.from_bytes(data, "big") for kind, stream, data in seen if kind == frames.WINDOW_UPDATE and stream)


async def test_a_budget_of_the_handlers_choice_takes_over_the_reservation() -> None:
    mine = Budget(COPIES * MiB)
    before: list[int] = []

    async def charge(call: GrpcCall) -> None:
        await until(lambda: call._held > FREE_BYTES)
        before.append(call.connection.server.budget.held)
        call.charge_to(mine)
        assert (mine.held, call.connection.server.budget.held) == (before[0], 0)

    async with serving(reading(charge)) as served:
        async with connected(served.port) as peer:
            assert (await peer.request(request(), framed(bytes(60_000)))).messages == [b"60000"]
        assert before[0] >= COPIES * FREE_BYTES
        assert mine.held == 0
        await idle(served)


@pytest.mark.parametrize("flag", [0, 1])
def test_empty_messages_take_little_memory(flag: int) -> None:
    """Sixty megabytes of them once took seven hundred."""
    data = framed(b"", flag) * (STREAM_WINDOW // 5)
    inbox = Inbox(1000)
    tracemalloc.start()
    try:
        for at in range(0, len(data), 16_000):
            inbox.feed(data, at, min(len(data), at + 16_000))
        assert tracemalloc.get_traced_memory()[0] < 2 * len(data)
    finally:
        tracemalloc.stop()
    assert len(inbox.messages) == MAX_CUT
    count = 0
    while inbox.messages or inbox.uncut:
        if not inbox.messages:
            inbox.cut()
        inbox.messages.popleft()
        count += 1
    assert count == STREAM_WINDOW // 5


def test_a_message_in_tiny_pieces_takes_little_memory() -> None:
    message = framed(random.Random(1).randbytes(100_000))
    inbox = Inbox(1_000_000)
    tracemalloc.start()
    try:
        for at in range(0, len(message) - 2, 2):
            inbox.feed(message, at, at + 2)
        assert tracemalloc.get_traced_memory()[0] < 2 * len(message)
    finally:
        tracemalloc.stop()
    rest = len(message) - (len(message) - 2) % 2
    inbox.feed(message, (len(message) - 2 + 1) // 2 * 2, rest)
    inbox.feed(message, rest, len(message))
    assert inbox.messages.popleft() == message[5:]


async def test_many_small_messages_are_all_read_and_the_window_holds_them_back() -> None:
    async with serving(Methods()) as served, connected(served.port) as peer:
        messages = [bytes([number % 256]) * (number % 3) for number in range(3000)]
        answer = await peer.request(request("/test.Service/Talk"), b"".join(framed(message) for message in messages))
        assert answer.messages == messages
        await idle(served)


@pytest.mark.parametrize("seed", range(3))
async def test_however_calls_end_nothing_stays_held(seed: int) -> None:
    rng = random.Random(seed)
    async with serving(Methods(), budgeted(MiB)) as served:
        for _ in range(4):
            async with connected(served.port) as peer:
                for _ in range(10):
                    method = rng.choice(["Echo", "Total", "Talk", "Hang", "Nobody"])
                    stream_id = peer.h2.get_next_available_stream_id()
                    peer.h2.send_headers(stream_id, request(f"/test.Service/{method}"))
                    data = framed(bytes(rng.choice([0, 10, 5000, 50_000])))[: rng.choice([3, 4000, 16_000])]
                    peer.h2.send_data(stream_id, data, end_stream=rng.random() < 0.5)
                    if rng.random() < 0.3:
                        peer.h2.reset_stream(stream_id)
                    peer.flush()
                    await asyncio.sleep(0)
        for call in list(served.server.connections):
            call.abort()
        await until(lambda: served.server.budget.held == 0)
