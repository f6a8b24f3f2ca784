"""A cheap attack must not be expensive for the server: every flood ends, and other connections are unaffected."""

import asyncio
import gzip

import h2.events
import hpack
import pytest

from adapters.http2 import frames
from adapters.http2.accepted import Limits
from adapters.http2.control import MAX_BACKLOG
from adapters.http2.fields import encode
from adapters.http2.frames import CALM, END_HEADERS, END_STREAM, ErrorCode, frame
from adapters.http2.status import Code
from tests.adapters.http2.peer import GREETING, connected, framed, plainly, request
from tests.adapters.http2.served import Methods, Served, serving

HELLO = framed(b"hello")
CALL = encode([(name.encode(), value.encode()) for name, value in request("/test.Service/Hang")])
KiB = 1024


async def neighbours_are_served(served: Served) -> None:
    async with connected(served.port) as other:
        assert (await other.request(request(), HELLO)).messages == [b"hello"]


async def flooded(served: Served, flood: bytes, times: int) -> int | None:
    """Send `flood` repeatedly until the server closes the connection; the code of its GOAWAY."""
    async with connected(served.port, start=False) as peer:
        peer.h2.initiate_connection()
        peer.h2.send_headers(1, request("/test.Service/Hang"))
        peer.h2.data_to_send()
        peer.acks = False
        peer.send(GREETING + frame(frames.HEADERS, END_HEADERS, 1, CALL))
        for _ in range(times):
            if peer.closed:
                break
            peer.send(flood)
            await asyncio.sleep(0)
        code = await peer.end()
    await neighbours_are_served(served)
    return code


@pytest.mark.parametrize(
    "flood",
    [
        frame(frames.PING, 0, 0, bytes(8)),
        frame(frames.PING, 1, 0, bytes(8)),
        frame(frames.SETTINGS, 0, 0),
        frame(frames.SETTINGS, 1, 0),
        frame(frames.DATA, 0, 1),
        frame(frames.DATA, frames.PADDED, 1, b"\0"),
        frame(frames.PRIORITY, 0, 1, bytes(5)),
        frame(frames.RST_STREAM, 0, 1, bytes(4)),
        frame(0xEE, 0, 1),
        frame(frames.GOAWAY, 0, 0, bytes(8)),
        frame(frames.HEADERS, END_HEADERS | END_STREAM, 1, b""),
        frames.window_update(0, 1),
        frames.window_update(1, 1),
    ],
    ids=[
        "ping", "ping answers", "settings", "settings answers", "empty data", "padding", "priority", "resets",
        "unknown", "goaway", "trailers", "windows", "windows of a stream",
    ],
)  # fmt: skip
async def test_a_flood_of_frames_without_effect_is_ended(flood: bytes) -> None:
    async with serving(Methods()) as served:
        assert await flooded(served, flood * 500, 200) == ErrorCode.ENHANCE_YOUR_CALM
        await served.quiet()


async def test_rapid_reset() -> None:
    """CVE-2023-44487: calls begun and taken back, as fast as they can be written."""
    methods = Methods()

    def burst(first: int) -> bytes:
        return b"".join(
            frame(frames.HEADERS, END_HEADERS, i, CALL) + frames.rst_stream(i, ErrorCode.CANCEL)
            for i in range(first, first + 200, 2)
        )

    async with serving(methods) as served:
        async with connected(served.port, start=False) as peer:
            peer.h2.initiate_connection()
            peer.h2.data_to_send()
            peer.send(GREETING)
            for i in range(200):
                if peer.closed:
                    break
                peer.send(burst(1 + i * 200))
                await asyncio.sleep(0)
            assert await peer.end() == ErrorCode.ENHANCE_YOUR_CALM
        await served.quiet()
        assert len(methods.seen) <= 2 * CALM
        assert methods.begun == len(methods.ends)
        await neighbours_are_served(served)


async def test_calls_that_are_refused_one_after_the_other() -> None:
    def burst(first: int) -> bytes:
        return b"".join(frame(frames.HEADERS, END_HEADERS, i, CALL) for i in range(first, first + 200, 2))

    async with serving(Methods(), Limits(max_streams=3)) as served:
        async with plainly(served.port) as plain:
            plain.send(GREETING)
            for i in range(200):
                if plain.closed:
                    break
                plain.send(burst(1 + i * 200))
                await asyncio.sleep(0)
            await plain.until(lambda: plain.closed)
            resets = [payload for kind, _, payload in plain.frames if kind == frames.RST_STREAM]
            assert resets.count(b"\0\0\0\7") <= 2 * CALM
        await served.quiet()
        await neighbours_are_served(served)


async def test_an_endless_head_is_ended() -> None:
    """The CONTINUATION flood, with content and without."""
    for piece in (b"", b"\0\1a\x7f\x81\x7f" + b"a" * 16_384):
        async with serving(Methods()) as served:
            async with connected(served.port, start=False) as peer:
                peer.send(GREETING + frame(frames.HEADERS, 0, 1, CALL))
                peer.acks = False
                for _ in range(200):
                    if peer.closed:
                        break
                    peer.send(frame(frames.CONTINUATION, 0, 1, piece))
                    await asyncio.sleep(0)
                assert await peer.end() == ErrorCode.ENHANCE_YOUR_CALM
            await neighbours_are_served(served)


async def test_a_head_that_unpacks_to_far_more_than_it_is() -> None:
    encoder = hpack.Encoder()
    fields = [(name.encode(), value.encode()) for name, value in request()]
    bomb = encoder.encode([*fields, *[(b"x-a", b"a" * 3500)] * 10_000])
    assert len(bomb) < 16_000
    async with serving(Methods()) as served, connected(served.port) as peer:
        peer.h2.send_headers(1, request(), end_stream=True)
        peer.h2.data_to_send()
        peer.send(frame(frames.HEADERS, END_HEADERS | END_STREAM, 1, bomb))
        assert (await peer.answer(1)).status == Code.RESOURCE_EXHAUSTED


async def test_a_message_that_inflates_to_far_more_than_it_is() -> None:
    bomb = gzip.compress(bytes(50_000_000))
    async with serving(Methods(), Limits(max_message=100 * KiB)) as served, connected(served.port) as peer:
        answer = await peer.request(request(grpc_encoding="gzip"), framed(bomb, flag=1))
        assert answer.status == Code.RESOURCE_EXHAUSTED
        await served.quiet()


async def test_more_than_the_window() -> None:
    """A client that ignores the window of its call, and so would fill the memory of a handler that does not read."""
    methods = Methods()
    async with serving(methods) as served, connected(served.port) as peer:
        stream_id = peer.call(request("/test.Service/Hang"), end=False)
        await peer.until(lambda: methods.begun == 1)
        piece = frame(frames.DATA, 0, stream_id, framed(bytes(512 * KiB)))
        for _ in range(40):
            peer.send(piece)
            await asyncio.sleep(0)
        assert (await peer.answer(stream_id)).reset == ErrorCode.FLOW_CONTROL_ERROR
        await served.quiet()
        await neighbours_are_served(served)


async def test_unread_messages_of_many_calls() -> None:
    methods = Methods()
    async with serving(methods, Limits(max_held=1000 * KiB)) as served, connected(served.port) as peer:
        ids = [peer.call(request("/test.Service/Hang"), framed(bytes(60 * KiB)), end=False) for _ in range(1)]
        for _ in range(30):
            await peer.until(lambda: peer.h2.outbound_flow_control_window > 200 * KiB)
            ids.append(peer.call(request("/test.Service/Hang"), framed(bytes(60 * KiB)), end=False))
        answers = await asyncio.gather(*[peer.answer(i) for i in ids[17:]])
        assert {answer.status for answer in answers} == {Code.RESOURCE_EXHAUSTED}
        assert not any(i in peer.answers for i in ids[:10])
        assert next(iter(served.server.connections)).held <= 1000 * KiB


async def test_unread_answers_are_bounded() -> None:
    """Under a window of zero, answers accumulate up to a bound; calls beyond it are refused."""
    async with serving(Methods(), Limits(max_unsent=500 * KiB, max_streams=100)) as served:
        async with connected(served.port) as peer:
            peer.h2.update_settings({4: 0})
            peer.flush()
            big = framed(bytes(30 * KiB))
            ids = []
            for _ in range(40):
                await peer.until(lambda: peer.h2.outbound_flow_control_window > 200 * KiB)
                ids.append(peer.call(request(), big))
                await peer.until(lambda: ids[-1] in peer.answers)
            assert [peer.answers[i].reset for i in ids].count(ErrorCode.REFUSED_STREAM) >= 20
            assert next(iter(served.server.connections)).outlet.unsent <= 600 * KiB
            await neighbours_are_served(served)
        await served.quiet()


async def test_unread_answers_to_pings_end_the_connection() -> None:
    """The budget for frames is not what ends this: the answers do not fit into the client's socket."""
    async with serving(Methods()) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1024)
        accepted = await served.accepted()
        writer.write(GREETING)
        pings = frame(frames.PING, 0, 0, bytes(8)) * 1000
        while served.server.connections:
            accepted._calm = CALM
            if not writer.transport.is_closing():
                writer.write(pings)
            await asyncio.sleep(0)
            backlog = accepted.transport.get_write_buffer_size()
            assert backlog <= 2 * MAX_BACKLOG
            if accepted._closing:
                break
        assert accepted._closing
        writer.transport.abort()
        assert reader is not None
        await neighbours_are_served(served)


async def test_more_connections_than_allowed() -> None:
    async with serving(Methods(), Limits(max_connections=2)) as served:
        async with connected(served.port) as first, connected(served.port) as second:
            calls = [peer.call(request(), HELLO[:3], end=False) for peer in (first, second)]
            await first.until(lambda: [c.spare for c in served.server.connections] == [False, False])
            async with connected(served.port) as third:
                assert await third.end() == ErrorCode.ENHANCE_YOUR_CALM
            for peer, call in zip((first, second), calls, strict=True):
                peer.h2.send_data(call, HELLO[3:], end_stream=True)
                peer.flush()
                assert (await peer.answer(call)).status == 0
        await peer.until(lambda: not served.server.connections)
        await neighbours_are_served(served)


async def test_more_calls_than_allowed() -> None:
    methods = Methods()
    async with serving(methods, Limits(max_streams=2)) as served, plainly(served.port) as plain:
        plain.send(GREETING + b"".join(frame(frames.HEADERS, END_HEADERS, i, CALL) for i in (1, 3, 5)))
        await plain.until(lambda: (frames.RST_STREAM, 5, b"\0\0\0\7") in plain.frames)
        await plain.until(lambda: methods.begun == 2)
        plain.send(frames.rst_stream(1, ErrorCode.CANCEL) + frame(frames.HEADERS, END_HEADERS, 7, CALL))
        await plain.until(lambda: methods.begun == 3)
        assert methods.ends == ["cancelled"]


HTTP1 = [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /x HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc",
    b"OPTIONS * HTTP/1.0\r\n\r\n",
]
NOISE = [b"\0" * 100, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"hello", b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"]


@pytest.mark.parametrize("sent", HTTP1)
async def test_an_http1_request_has_an_http1_answer(sent: bytes) -> None:
    async with serving(Methods()) as served, plainly(served.port) as plain:
        plain.send(sent)
        await plain.until(lambda: plain.closed)
        head, _, body = plain.raw.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 426 ")
        assert b"content-length: %d" % len(body) in head
        assert b"gRPC" in body


@pytest.mark.parametrize("sent", NOISE)
async def test_noise_is_reported_and_disconnected(sent: bytes) -> None:
    async with serving(Methods()) as served, connected(served.port, start=False) as peer:
        peer.send(sent)
        assert await peer.end() == ErrorCode.PROTOCOL_ERROR
        await neighbours_are_served(served)


async def test_a_client_that_updates_windows_after_every_frame_stays_connected() -> None:
    count = 3 * CALM // 2
    each = frames.window_update(0, 1) + frames.window_update(1, 1) + frame(frames.PING, 0, 0, bytes(8))
    async with serving(Methods()) as served, connected(served.port) as peer:
        stream_id = peer.call(request("/test.Service/Count"), framed(b"%d" % count))
        given = 0
        while not peer.closed and not (stream_id in peer.answers and peer.answers[stream_id].over):
            taken = sum(isinstance(event, h2.events.DataReceived) for event in peer.events)
            peer.send(each * (taken - given))
            given = taken
            await asyncio.sleep(0.001)
        assert len((await peer.answer(stream_id)).messages) == count
        assert (await peer.request(request(), HELLO)).status == 0


async def test_a_long_life_of_calls_earns_its_pings() -> None:
    """More frames without work than the budget allows, between calls that do work."""
    async with serving(Methods()) as served, connected(served.port) as peer:
        for _ in range(CALM // 5):
            peer.send(frame(frames.PING, 0, 0, bytes(8)) * 7)
            assert (await peer.request(request(), HELLO)).status == 0
        assert peer.goaway is None
