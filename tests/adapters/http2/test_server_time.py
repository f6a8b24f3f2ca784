"""Every wait has an end, and every call that was begun has exactly one."""

import asyncio
import socket
import stat
from pathlib import Path

import h2.events
import pytest

from adapters.http2 import frames
from adapters.http2.accepted import Limits, Server
from adapters.http2.call import GrpcCall
from adapters.http2.fields import encode
from adapters.http2.frames import ErrorCode, frame
from adapters.http2.status import Code
from tests.adapters.http1.raw import until
from tests.adapters.http2.channels import calling, soon
from tests.adapters.http2.peer import GREETING, Peer, connected, framed, plainly, request
from tests.adapters.http2.served import PATIENCE, Methods, serving
from tests.support.loops import Reports

HELLO = framed(b"hello")
SOON = 0.05


def head(path: str, stream_id: int = 1) -> bytes:
    """The beginning of a call."""
    block = encode([(name.encode(), value.encode()) for name, value in request(path)])
    return frame(frames.HEADERS, frames.END_HEADERS, stream_id, block)


# ── a client that sends too slowly ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("sent", [b"", frames.PREFACE[:10], frames.PREFACE, GREETING[:-1]])
async def test_a_client_without_a_preface_is_disconnected(sent: bytes) -> None:
    async with serving(Methods(), Limits(greeting_timeout=SOON)) as served, plainly(served.port) as plain:
        plain.send(sent)
        await plain.until(lambda: plain.closed)


@pytest.mark.parametrize("sent", [b"", b"\0", HELLO[:5], HELLO[:-1], HELLO])
async def test_a_message_that_must_come_and_does_not(sent: bytes) -> None:
    """A unary call also waits for its end, before which it could still be another."""
    async with serving(Methods(), Limits(message_timeout=SOON)) as served, connected(served.port) as peer:
        answer = await peer.answer(peer.call(request(), sent, end=False))
        assert answer.status == Code.DEADLINE_EXCEEDED
        await served.quiet()


@pytest.mark.parametrize("sent", [b"\0", HELLO[:-1], HELLO + HELLO[:3]])
async def test_a_message_of_a_stream_that_stops_halfway(sent: bytes) -> None:
    limits = Limits(message_timeout=SOON)
    async with serving(Methods(), limits) as served, connected(served.port) as peer:
        answer = await peer.answer(peer.call(request("/test.Service/Total"), sent, end=False))
        assert answer.status == Code.DEADLINE_EXCEEDED


async def test_a_stream_may_be_silent_between_messages() -> None:
    limits = Limits(message_timeout=SOON, send_timeout=SOON, ping_interval=0.4)
    async with serving(Methods(), limits) as served, connected(served.port) as peer:
        stream_id = peer.call(request("/test.Service/Talk"), HELLO, end=False)
        await peer.until(lambda: len(peer.pings) >= 2)
        peer.h2.send_data(stream_id, HELLO, end_stream=True)
        peer.flush()
        answer = await peer.answer(stream_id)
        assert (answer.messages, answer.status) == ([b"hello", b"hello"], 0)


@pytest.mark.waits
async def test_a_large_message_gets_the_time_that_its_bytes_take() -> None:
    limits = Limits(message_timeout=SOON, min_message_rate=10)
    async with serving(Methods(), limits) as served, connected(served.port) as peer:
        message = framed(bytes(1000))
        stream_id = peer.call(request(), message[:500], end=False)
        await asyncio.sleep(4 * SOON)
        peer.h2.send_data(stream_id, message[500:], end_stream=True)
        peer.flush()
        assert (await peer.answer(stream_id)).status == 0


@pytest.mark.waits
async def test_a_message_that_the_handler_lets_wait_is_not_late() -> None:
    read = asyncio.Event()

    async def handler(call: GrpcCall) -> None:
        await read.wait()
        assert await call.read() == b"hello"
        assert await call.read() == b"hello"

    limits = Limits(message_timeout=SOON)
    async with serving(handler, limits) as served, connected(served.port) as peer:
        stream_id = peer.call(request(), HELLO + HELLO[:8], end=False)
        await asyncio.sleep(4 * SOON)
        peer.h2.send_data(stream_id, HELLO[8:], end_stream=True)
        peer.flush()
        read.set()
        assert (await peer.answer(stream_id)).status == 0


# ── a client that takes too slowly ────────────────────────────────────────────────────────────────────────


async def shut(peer: Peer) -> None:
    """Let the windows of what follows be nothing."""
    peer.takes_data = False
    peer.h2.update_settings({4: 0})
    peer.flush()
    await peer.until(lambda: any(isinstance(e, h2.events.SettingsAcknowledged) for e in peer.events[2:]))


async def test_a_window_that_stays_shut_ends_the_call() -> None:
    methods = Methods()
    async with serving(methods, Limits(send_timeout=SOON)) as served, connected(served.port) as peer:
        await shut(peer)
        whole, stream = peer.call(request(), HELLO), peer.call(request("/test.Service/Flood"), end=False)
        for stream_id in (whole, stream):
            assert (await peer.answer(stream_id)).reset == ErrorCode.CANCEL
        await until(lambda: methods.ends == ["CancelledError"])
        await served.quiet()


@pytest.mark.virtual
async def test_a_client_that_takes_slowly_is_waited_for() -> None:
    async with serving(Methods(), Limits(send_timeout=1.0)) as served, connected(served.port) as peer:
        await shut(peer)
        stream_id = peer.call(request(), HELLO)
        for _ in range(10):
            await asyncio.sleep(0.15)
            peer.h2.increment_flow_control_window(1, stream_id)
            peer.flush()
        assert (await peer.answer(stream_id)).messages == [b"hello"]


async def test_a_client_that_reads_nothing_at_all_is_dropped() -> None:
    methods = Methods()
    limits = Limits(send_timeout=SOON, ping_interval=SOON)
    async with serving(methods, limits) as served, connected(served.port) as peer:
        peer.h2.increment_flow_control_window(2**30)
        peer.h2.update_settings({4: 2**30})
        peer.flush()
        accepted = await served.accepted()
        await until(lambda: accepted.outlet.initial_window == 2**30)
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        peer.call(request("/test.Service/Flood"), end=False)
        await until(lambda: methods.ends == ["CancelledError"])
        await until(lambda: not served.server.connections)


# ── a client that is not there any more ───────────────────────────────────────────────────────────────────


async def test_a_client_that_answers_no_ping_is_dropped() -> None:
    methods = Methods()
    async with serving(methods, Limits(ping_interval=SOON)) as served, connected(served.port) as peer:
        peer.call(request("/test.Service/Hang"), end=False)
        await until(lambda: methods.begun == 1)
        peer.acks = False
        await peer.until(lambda: peer.closed)
        await until(lambda: methods.ends == ["cancelled"])
        assert set(peer.pings) == {b"anybody?"}


async def test_a_client_that_answers_pings_stays_connected() -> None:
    methods = Methods()
    async with serving(methods, Limits(ping_interval=0.4)) as served, connected(served.port) as peer:
        peer.call(request("/test.Service/Hang"), end=False)
        await peer.until(lambda: len(peer.pings) >= 3)
        assert methods.ends == []


async def test_a_connection_without_calls_is_closed_in_the_end() -> None:
    limits = Limits(ping_interval=0.02, idle_timeout=0.1, lull=SOON)
    async with serving(Methods(), limits) as served, plainly(served.port) as plain:
        plain.send(GREETING + head("/test.Service/Echo") + frame(frames.DATA, frames.END_STREAM, 1, HELLO))
        await plain.until(lambda: plain.closed)
        assert (frames.DATA, 1, HELLO) in plain.frames
        assert plain.goaways == [b"\x7f\xff\xff\xff", b"\0\0\0\1"]


async def test_a_frame_that_drips_in_is_silence() -> None:
    limits = Limits(ping_interval=0.02, idle_timeout=0.2, lull=SOON)
    async with serving(Methods(), limits) as served, plainly(served.port) as plain:
        plain.send(GREETING + b"\0\x40\0\1\4\0\0\0\1")
        async with asyncio.timeout(PATIENCE):
            while not plain.closed:
                plain.send(b"\0")
                await asyncio.sleep(0.005)


async def test_a_client_that_leaves_ends_its_calls() -> None:
    methods = Methods()
    async with serving(methods) as served:
        async with connected(served.port) as peer:
            for _ in range(3):
                peer.call(request("/test.Service/Hang"), end=False)
            await until(lambda: methods.begun == 3)
        await until(lambda: methods.ends == ["cancelled"] * 3)
        await until(lambda: not served.server.connections)


async def test_writing_to_a_client_that_has_left_ends() -> None:
    """A handler whose task is cancelled while another task of it still writes."""
    began, errors = asyncio.Event(), list[Exception]()

    async def handler(call: GrpcCall) -> None:
        async def writing() -> None:
            try:
                while True:
                    await call.write(bytes(100_000))
                    began.set()  # no timer of virtual time would end while bytes flow
            except Exception as error:
                errors.append(error)

        writer = asyncio.create_task(writing())
        try:
            await asyncio.Event().wait()
        finally:
            await writer

    async with serving(handler) as served, connected(served.port) as peer:
        stream_id = peer.call(request(), end=False)
        await began.wait()
        peer.h2.reset_stream(stream_id, ErrorCode.CANCEL)
        peer.flush()
        await until(lambda: len(errors) == 1)
    assert "disconnected" in str(errors[0])


# ── handlers ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_handler_that_ignores_its_cancellation_is_still_over() -> None:
    ended = asyncio.Event()

    async def handler(call: GrpcCall) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            call.reply(b"too late")
        ended.set()

    async with serving(handler) as served, connected(served.port) as peer:
        answer = await peer.request(request(grpc_timeout="50m"), HELLO)
        assert answer.status == Code.DEADLINE_EXCEEDED
        await ended.wait()
        await served.quiet()


async def test_a_handler_with_a_cancelled_wait_fails_its_call() -> None:
    async def handler(call: GrpcCall) -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    async with serving(handler) as served, connected(served.port) as peer:
        assert (await peer.request(request(), HELLO)).status == Code.CANCELLED


async def test_metadata_that_no_field_can_hold_fails_the_call(reports: Reports) -> None:
    async def handler(call: GrpcCall) -> None:
        if call.path.endswith("a"):
            call.fail(Code.ABORTED, "no", [("x-a", "line\nbreak")])
        call.initial_metadata = [("X", "upper")]
        await call.write(b"x")

    async with serving(handler) as served, connected(served.port) as peer:
        for path in ("/a", "/b"):
            answer = await peer.request(request(path), HELLO)
            assert (answer.status, answer.messages) == (Code.INTERNAL, [])
    assert [type(report["exception"]) for report in reports] == [ValueError, ValueError, ValueError]
    reports.clear()


async def test_an_answer_after_the_end_is_an_error_of_the_handler(reports: Reports) -> None:
    async def handler(call: GrpcCall) -> None:
        call.reply(b"one")
        call.reply(b"two")

    async with serving(handler) as served, connected(served.port) as peer:
        answer = await peer.request(request(), HELLO)
        assert (answer.messages, answer.status) == ([b"one"], 0)
    assert isinstance(reports.pop()["exception"], RuntimeError)


# ── leaving ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_drain_is_announced_twice_and_ends_with_the_last_call() -> None:
    async with serving(Methods()) as served, plainly(served.port) as plain:
        plain.send(GREETING + head("/test.Service/Talk") + frame(frames.DATA, 0, 1, HELLO))
        await plain.until(lambda: (frames.DATA, 1, HELLO) in plain.frames)
        draining = asyncio.create_task(served.server.drain(PATIENCE))
        await plain.until(lambda: len(plain.goaways) == 1)
        assert (frames.PING, 0, b"draining") in plain.frames
        plain.send(frame(frames.PING, 1, 0, b"draining"))
        await plain.until(lambda: len(plain.goaways) == 2)
        plain.send(head("/test.Service/Echo", 3))
        await plain.until(lambda: (frames.RST_STREAM, 3, b"\0\0\0\7") in plain.frames)
        assert not draining.done()
        plain.send(frame(frames.DATA, frames.END_STREAM, 1, HELLO))
        assert await draining
        await plain.until(lambda: plain.closed)
        assert plain.frames.count((frames.DATA, 1, HELLO)) == 2
        assert plain.goaways == [b"\x7f\xff\xff\xff", b"\0\0\0\1"]


async def test_a_call_that_was_on_its_way_when_the_drain_began_is_answered() -> None:
    async with serving(Methods()) as served, plainly(served.port) as plain:
        plain.send(GREETING)
        await plain.until(lambda: plain.frames)
        draining = asyncio.create_task(served.server.drain(PATIENCE))
        await plain.until(lambda: len(plain.goaways) == 1)
        plain.send(
            head("/test.Service/Echo")
            + frame(frames.DATA, frames.END_STREAM, 1, HELLO)
            + frame(frames.PING, 1, 0, b"draining")
        )
        assert await draining
        await plain.until(lambda: plain.closed)
        assert (frames.DATA, 1, HELLO) in plain.frames
        assert plain.goaways == [b"\x7f\xff\xff\xff", b"\0\0\0\1"]


async def test_a_drain_does_not_wait_forever_for_a_silent_client() -> None:
    async with serving(Methods(), Limits(lull=SOON)) as served, plainly(served.port) as plain:
        plain.send(GREETING)
        await plain.until(lambda: plain.frames)
        assert await served.server.drain(PATIENCE)


async def test_a_drain_ends_with_its_grace() -> None:
    methods = Methods()
    async with serving(methods) as served, plainly(served.port) as plain:
        plain.send(GREETING + head("/test.Service/Hang"))
        await until(lambda: methods.begun == 1)
        assert not await served.server.drain(4 * SOON)
        await served.server.aclose()
        assert methods.ends == ["cancelled"]


@pytest.mark.waits
async def test_a_client_that_connected_before_the_drain_and_speaks_after_the_lull_is_answered() -> None:
    async with serving(Methods(), Limits(lull=SOON)) as served, plainly(served.port) as plain:
        await until(lambda: len(served.server.connections) == 1)
        draining = asyncio.create_task(served.server.drain(PATIENCE))
        await asyncio.sleep(4 * SOON)
        plain.send(GREETING + head("/test.Service/Echo") + frame(frames.DATA, frames.END_STREAM, 1, HELLO))
        await plain.until(lambda: (frames.DATA, 1, HELLO) in plain.frames)
        assert await draining


async def test_a_drain_shortens_the_wait_for_a_preface() -> None:
    async with serving(Methods(), Limits(lull=SOON)) as served, plainly(served.port) as plain:
        await until(lambda: len(served.server.connections) == 1)
        assert await served.server.drain(20 * SOON)
        await plain.until(lambda: plain.closed)


@pytest.mark.waits
async def test_a_drain_waits_for_a_handler_that_continues_after_its_answer() -> None:
    ended: list[str] = []

    async def handler(call: GrpcCall) -> None:
        call.reply(b"x")
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(SOON)
            ended.append(call.path)

    async with serving(handler) as served:
        async with connected(served.port) as peer:
            assert (await peer.request(request("/a"), HELLO)).messages == [b"x"]
        assert not await served.server.drain(2 * SOON)
        assert ended == []
        await served.server.aclose()
        assert ended == ["/a"]


async def test_closing_ends_handlers_first() -> None:
    methods = Methods()
    async with serving(methods) as served, connected(served.port) as peer:
        peer.call(request("/test.Service/Hang"), end=False)
        await until(lambda: methods.begun == 1)
        await served.server.aclose()
        assert methods.ends == ["cancelled"]
        await peer.until(lambda: peer.closed)


async def test_a_unix_socket_is_this_users_only_and_ends_with_its_server(tmp_path: Path) -> None:
    path = tmp_path / "s"
    server = Server(Methods())
    await server.listen_unix(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    async with calling(f"unix:{path}") as channel:
        assert await channel.unary(b"/test.Service/Echo", b"x", deadline=soon(channel)) == b"x"
    await server.aclose()
    assert not path.exists()


async def test_a_socket_of_another_owner() -> None:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        server = Server(Methods())
        listener = server.listen_socket(bound)
        async with calling(f"http://127.0.0.1:{bound.getsockname()[1]}") as channel:
            assert await channel.unary(b"/test.Service/Echo", b"x", deadline=soon(channel)) == b"x"
        server.leave_socket(listener)
        await server.aclose()
        await until(lambda: not server.connections)
