"""Our client before servers that answer well, oddly, wrongly, late or not at all."""

import asyncio
import contextlib
import random
import socket
from collections.abc import Callable
from itertools import pairwise

import pytest

from adapters.errors import (
    BackendError,
    DeadlineError,
    InferenceError,
    TransportError,
    Unavailable,
    UpstreamTimeout,
)
from adapters.http2 import frames
from adapters.http2.accepted import Limits, Server
from adapters.http2.channel import Channel, encode_fields
from adapters.http2.dialled import Dialled
from adapters.http2.exchange import Unprocessed
from adapters.http2.frames import ErrorCode, frame
from adapters.http2.status import Code, GrpcError
from adapters.http2.stream import STREAM_WINDOW
from adapters.types import Deadline
from tests.adapters.http1.raw import until
from tests.adapters.http2.channels import PATIENCE, calling, soon
from tests.adapters.http2.peer import framed, mutated
from tests.adapters.http2.scripted import SETTINGS, Other, answer, answering, data, head, scripted, trailers
from tests.adapters.http2.served import Methods, serving

ECHO = b"/test.Service/Echo"
SOON = 0.1


async def call_echo(channel: Channel, deadline: Deadline | None = None) -> bytes:
    return await channel.unary(ECHO, b"?", deadline=deadline or soon(channel))


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────

RIGHT: dict[str, Callable[[int], bytes]] = {
    "plain": lambda i: answer(i, b"!"),
    "more metadata": lambda i: (
        head(i, (":status", "200"), ("content-type", "application/grpc+proto"), ("x-a", "1"))
        + data(i, framed(b"!"))
        + trailers(i, "0", ("x-b", "2"))
    ),
    "told before": lambda i: head(i, (":status", "103"), ("x", "1")) + answer(i, b"!"),
    "byte for byte": lambda i: head(i) + b"".join(data(i, bytes([b])) for b in framed(b"!")) + trailers(i),
    "padded": lambda i: head(i) + frame(frames.DATA, frames.PADDED, i, b"\2" + framed(b"!") + b"\0\0") + trailers(i),
    "among others": lambda i: frame(0xCC, 1, i, b"?") + frame(frames.PING, 0, 0, bytes(8)) + answer(i, b"!"),
}


@pytest.mark.parametrize("make", RIGHT.values(), ids=RIGHT)
async def test_answers_as_they_may_be(make: Callable[[int], bytes]) -> None:
    async with scripted(answering(make)) as url, calling(url) as channel:
        for _ in range(3):
            assert await call_echo(channel) == b"!"
        assert channel.connections == 1


HEADED = ((":status", "200"), ("content-type", "application/grpc"))
FAILING: dict[str, tuple[Callable[[int], bytes], Code]] = {
    "trailers only": (lambda i: head(i, *HEADED, ("grpc-status", "5"), end=True), Code.NOT_FOUND),
    "no message": (lambda i: head(i) + trailers(i), Code.UNIMPLEMENTED),
    "no message at all": (lambda i: head(i, *HEADED, ("grpc-status", "0"), end=True), Code.UNIMPLEMENTED),
    "two messages": (lambda i: head(i) + data(i, framed(b"a") + framed(b"b")) + trailers(i), Code.UNIMPLEMENTED),
    "half a message": (lambda i: head(i) + data(i, framed(b"ab")[:-1]) + trailers(i), Code.INTERNAL),
    "a message and no": (lambda i: head(i) + data(i, framed(b"a")) + trailers(i, "10"), Code.ABORTED),
    "no status": (lambda i: head(i) + data(i, framed(b"a")) + head(i, ("x-a", "1"), end=True), Code.UNKNOWN),
    "a status of its own": (lambda i: head(i) + trailers(i, "many"), Code.UNKNOWN),
    "an end without trailers": (lambda i: head(i) + data(i, framed(b"a"), end=True), Code.UNKNOWN),
    "not compressed": (lambda i: head(i) + data(i, framed(b"a", 1)) + trailers(i), Code.INTERNAL),
    "no message's beginning": (lambda i: head(i) + data(i, framed(b"a", 9)), Code.INTERNAL),
    "too long": (lambda i: head(i) + data(i, b"\0\xff\xff\xff\xff"), Code.RESOURCE_EXHAUSTED),
    "not gRPC": (lambda i: head(i, (":status", "200"), ("content-type", "text/html")), Code.UNKNOWN),
    "HTTP 401": (lambda i: head(i, (":status", "401"), end=True), Code.UNAUTHENTICATED),
    "HTTP 404": (lambda i: head(i, (":status", "404")) + data(i, b"<html>", end=True), Code.UNIMPLEMENTED),
    "HTTP 503": (lambda i: head(i, (":status", "503")) + data(i, b"busy"), Code.UNAVAILABLE),
    "HTTP 302": (lambda i: head(i, (":status", "302"), ("location", "/"), end=True), Code.UNKNOWN),
    "data first": (lambda i: data(i, framed(b"a")) + trailers(i), Code.INTERNAL),
    "trailers first": (lambda i: trailers(i), Code.INTERNAL),
    "two heads": (lambda i: head(i) + head(i) + data(i, framed(b"a")), Code.INTERNAL),
    "trailers and no end": (lambda i: head(i) + head(i, ("grpc-status", "0")), Code.INTERNAL),
    "a name in capitals": (lambda i: head(i, *HEADED, ("X-A", "1")), Code.INTERNAL),
    "a status of words": (lambda i: head(i, (":status", "fine")), Code.INTERNAL),
    "a status behind": (lambda i: head(i, ("x-a", "1"), (":status", "200")), Code.INTERNAL),
    "a head that is too large": (lambda i: head(i, *HEADED, ("x", "a" * 40_000), ("y", "b" * 25_400)), Code.INTERNAL),
    "cancelled": (lambda i: frames.rst_stream(i, ErrorCode.CANCEL), Code.CANCELLED),
    "calmed": (lambda i: frames.rst_stream(i, ErrorCode.ENHANCE_YOUR_CALM), Code.RESOURCE_EXHAUSTED),
}


@pytest.mark.parametrize(("make", "code"), FAILING.values(), ids=FAILING)
async def test_answers_that_fail_their_call_only(make: Callable[[int], bytes], code: Code) -> None:
    """The connection is as good as before: the next call goes over it."""

    def one_of_two(stream_id: int) -> bytes:
        return make(stream_id) if stream_id % 4 == 1 else answer(stream_id, b"!")

    async with scripted(answering(one_of_two)) as url, calling(url) as channel:
        for _ in range(2):
            with pytest.raises(GrpcError) as caught:
                await call_echo(channel)
            assert caught.value.code == code
            assert await call_echo(channel) == b"!"
        assert channel.connections == 1


async def test_a_call_that_the_upstream_breaks_off() -> None:
    reset = answering(lambda i: frames.rst_stream(i, ErrorCode.INTERNAL_ERROR))
    async with scripted(reset) as url, calling(url) as channel:
        with pytest.raises(BackendError):
            await call_echo(channel)


async def test_an_end_before_all_was_sent_stops_the_sending() -> None:
    """The upstream ends the call before it has received all of it."""

    async def script(other: Other) -> None:
        other.send(SETTINGS)
        await other.until(lambda: any(kind == frames.HEADERS for kind, _, _ in other.frames))
        other.send(head(1, *HEADED, ("grpc-status", "8"), end=True))
        assert await other.reset(1) == ErrorCode.NO_ERROR

    async with scripted(script) as url, calling(url) as channel:
        with pytest.raises(GrpcError) as caught:
            await channel.unary(ECHO, bytes(10_000_000), deadline=soon(channel))
        assert caught.value.code == Code.RESOURCE_EXHAUSTED


# ── upstreams that leave ──────────────────────────────────────────────────────────────────────────────────


async def test_a_call_that_was_not_looked_at_is_made_again() -> None:
    async def leaving(other: Other) -> None:
        other.send(SETTINGS)
        await other.call()
        other.send(frames.goaway(0, ErrorCode.NO_ERROR))

    async with scripted(leaving, leaving, answering(lambda i: answer(i, b"!"))) as url, calling(url) as channel:
        assert await call_echo(channel) == b"!"


async def test_a_call_that_is_refused_again_and_again() -> None:
    refusing = answering(lambda i: frames.rst_stream(i, ErrorCode.REFUSED_STREAM))
    async with scripted(refusing) as url, calling(url) as channel:
        with pytest.raises(Unprocessed):
            await call_echo(channel)


async def test_a_processed_call_ends_on_its_connection_and_the_next_uses_another() -> None:
    async def leaving(other: Other) -> None:
        other.send(SETTINGS)
        await other.call()
        other.send(frames.goaway(1, ErrorCode.NO_ERROR) + answer(1, b"old"))

    async with scripted(leaving, answering(lambda i: answer(i, b"new"))) as url, calling(url) as channel:
        assert await call_echo(channel) == b"old"
        assert channel.connections == 0
        assert await call_echo(channel) == b"new"


@pytest.mark.parametrize(
    "last",
    [
        b"", head(1), head(1) + data(1, framed(b"abc")[:6]), head(1) + data(1, framed(b"abc")),
        frame(frames.PUSH_PROMISE, 4, 1, bytes(4)), frame(frames.PING, 0, 0, b"?"), head(3), data(3, b"?"),
        head(2), frames.window_update(0, 0), frame(frames.GOAWAY, 0, 0, b"?"), b"\xff" * 100,
        frame(frames.HEADERS, 4, 1, b"\x80"), frame(frames.CONTINUATION, 4, 1, b""),
        frame(frames.PING, 0, 0, bytes(8)) * 5000,
    ],
)  # fmt: skip
async def test_an_upstream_that_breaks_the_protocol_or_leaves_in_mid_answer(last: bytes) -> None:
    async def script(other: Other) -> None:
        other.send(SETTINGS)
        await other.call()
        other.send(last)
        other._writer.write_eof()

    async with scripted(script, answering(lambda i: answer(i, b"!"))) as url, calling(url) as channel:
        with pytest.raises(TransportError):
            await call_echo(channel)
        assert await call_echo(channel) == b"!"


@pytest.mark.parametrize(
    "greeting",
    [b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n", b"\0" * 30, b"", frames.goaway(0, ErrorCode.NO_ERROR)],
)
async def test_a_server_without_http2_is_an_error(greeting: bytes) -> None:
    async def script(other: Other) -> None:
        other.send(greeting)
        other._writer.write_eof()

    async with scripted(script) as url, calling(url) as channel:
        with pytest.raises(TransportError):
            await call_echo(channel)


async def test_an_upstream_that_sends_goaway_with_its_settings() -> None:
    async def script(other: Other) -> None:
        other.send(SETTINGS + frames.goaway(0, ErrorCode.NO_ERROR))

    async with scripted(script) as url, calling(url) as channel:
        with pytest.raises(TransportError):
            await call_echo(channel)


async def test_a_refused_connection_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port = bound.getsockname()[1]
    async with calling(f"http://127.0.0.1:{port}") as channel:
        with pytest.raises(TransportError):
            await call_echo(channel)


# ── upstreams that are late ───────────────────────────────────────────────────────────────────────────────


async def silent(other: Other) -> None:
    """Accepts a connection and sends nothing."""


async def greeting_only(other: Other) -> None:
    other.send(SETTINGS)


async def test_an_upstream_that_does_not_greet() -> None:
    async with scripted(silent) as url, calling(url, connect_timeout=SOON) as channel:
        with pytest.raises(UpstreamTimeout):
            await call_echo(channel)


async def test_time_that_is_up_while_connecting() -> None:
    async with scripted(silent) as url, calling(url, connect_timeout=10 * SOON) as channel:
        with pytest.raises(DeadlineError):
            await call_echo(channel, Deadline(channel.now() + SOON, PATIENCE, PATIENCE))


async def test_a_connection_that_has_gone_silent_gets_no_more_calls() -> None:
    async with scripted(greeting_only, answering(lambda i: answer(i, b"!"))) as url, calling(url) as channel:
        with pytest.raises(UpstreamTimeout):
            await call_echo(channel, Deadline(channel.now() + PATIENCE, SOON, PATIENCE))
        assert await call_echo(channel) == b"!"


async def test_a_late_call_on_a_connection_that_lives_costs_only_itself() -> None:
    async def script(other: Other) -> None:
        other.send(SETTINGS)
        await other.call()
        other.send(frame(frames.PING, 0, 0, bytes(8)))
        assert await other.reset(1) == ErrorCode.CANCEL
        other.send(answer(await other.call(2), b"!"))

    async with scripted(script) as url, calling(url) as channel:
        with pytest.raises(UpstreamTimeout):
            await call_echo(channel, Deadline(channel.now() + PATIENCE, 20 * SOON, PATIENCE))
        assert await call_echo(channel) == b"!"


@pytest.mark.parametrize("begun", [head(1), head(1) + data(1, framed(b"!")[:3]), head(1) + data(1, framed(b"!"))])
async def test_an_answer_that_stops_in_the_middle(begun: bytes) -> None:
    async def script(other: Other) -> None:
        other.send(SETTINGS)
        await other.call()
        other.send(begun)

    async with scripted(script) as url, calling(url) as channel:
        with pytest.raises(UpstreamTimeout, match="middle"):
            await call_echo(channel, Deadline(channel.now() + PATIENCE, PATIENCE, SOON))


@pytest.mark.virtual
async def test_a_stream_is_not_late_while_it_continues_or_is_unread() -> None:
    async def script(other: Other) -> None:
        other.send(SETTINGS)
        await other.call()
        other.send(head(1))
        for _ in range(8):
            await asyncio.sleep(0.2)
            other.send(data(1, framed(b".")))
        await asyncio.sleep(0.2)
        other.send(trailers(1))

    async with scripted(script) as url, calling(url) as channel:
        stream = await channel.stream(ECHO, deadline=Deadline(channel.now() + PATIENCE, PATIENCE, 1.0))
        await stream.write(b"?")
        stream.half_close()
        assert await stream.read() == b"."
        count = 1
        while await stream.read() is not None:
            count += 1
        assert count == 8


async def test_a_request_that_the_server_does_not_read_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Dialled, "send_timeout", SOON)

    async def script(other: Other) -> None:
        other.send(frames.settings_frame({frames.INITIAL_WINDOW_SIZE: 10}))
        await other.until(lambda: any(kind == frames.HEADERS for kind, _, _ in other.frames))

    async with scripted(script) as url, calling(url) as channel:
        with pytest.raises(UpstreamTimeout):
            await channel.unary(ECHO, bytes(100), deadline=soon(channel))
        stream = await channel.stream(ECHO, deadline=soon(channel))
        with pytest.raises(UpstreamTimeout):
            await stream.write(bytes(100))
        with pytest.raises(UpstreamTimeout):
            await stream.write(bytes(100))


# ── bounds ────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_window_holds_back_an_unread_answer() -> None:
    message = framed(bytes(STREAM_WINDOW // 4 - 5))

    async def script(other: Other) -> None:
        other.send(SETTINGS)
        await other.call()
        other.send(head(1))
        for _ in range(4):
            for at in range(0, len(message), 2**20):
                other.send(data(1, message[at : at + 2**20]))
        other.send(frame(frames.PING, 0, 0, b"all sent"))
        await other.until(lambda: (frames.PING, 0, b"all sent") in other.frames)
        assert not any((kind, i) == (frames.WINDOW_UPDATE, 1) for kind, i, _ in other.frames)
        read.set()
        await other.until(lambda: any((kind, i) == (frames.WINDOW_UPDATE, 1) for kind, i, _ in other.frames))
        other.send(trailers(1))

    read = asyncio.Event()
    async with scripted(script) as url, calling(url) as channel:
        stream = await channel.stream(ECHO, deadline=soon(channel))
        await stream.write(b"?")
        stream.half_close()
        await read.wait()
        sizes = []
        while (chunk := await stream.read()) is not None:
            sizes.append(len(chunk))
        assert sizes == [STREAM_WINDOW // 4 - 5] * 4


async def test_more_calls_than_there_may_be() -> None:
    async with scripted(greeting_only) as url, calling(url, max_connections=2, max_streams=3) as channel:
        waiting = [asyncio.create_task(call_echo(channel)) for _ in range(6)]
        await until(lambda: sum(len(c.streams) for c in channel._usable) == 6)
        with pytest.raises(Unavailable):
            await call_echo(channel)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)


async def test_a_request_in_frames_of_the_size_that_the_upstream_takes() -> None:
    sent = bytes(range(256)) * 300

    async def script(other: Other) -> None:
        other.send(frames.settings_frame({frames.INITIAL_WINDOW_SIZE: 2**20, frames.MAX_FRAME_SIZE: 20_000}))
        other.send(frames.window_update(0, 2**20))
        await other.until(lambda: len(pieces(other)) > 0 and sum(map(len, pieces(other))) == len(sent) + 5)
        assert max(map(len, pieces(other))) == 20_000
        assert b"".join(pieces(other)) == framed(sent)
        other.send(answer(1, b"!"))

    def pieces(other: Other) -> list[bytes]:
        return [payload for kind, _, payload in other.frames if kind == frames.DATA]

    async with scripted(script) as url, calling(url) as channel:
        assert await channel.unary(ECHO, sent, deadline=soon(channel)) == b"!"


async def test_larger_windows_are_agreed_to_before_they_are_used() -> None:
    """gRPC's own server closes a connection on which more comes than the windows that it knows to be agreed to."""
    sent = bytes(100_000)

    async def script(other: Other) -> None:
        other.send(SETTINGS + frames.window_update(0, 2**20))
        await other.until(
            lambda: sum(len(payload) for kind, _, payload in other.frames if kind == frames.DATA) == 65_535
        )
        other.send(frames.settings_frame({frames.INITIAL_WINDOW_SIZE: 2**20}))
        await other.until(
            lambda: sum(len(payload) for kind, _, payload in other.frames if kind == frames.DATA) > 100_000
        )
        seen, before = 0, 0
        for kind, _, payload in other.frames:
            if kind == frames.DATA:
                seen += len(payload)
            elif kind == frames.SETTINGS and not payload:
                before = seen  # the last update opens the new window
        assert before == 65_535
        other.send(answer(1, b"!"))

    async with scripted(script) as url, calling(url) as channel:
        assert await channel.unary(ECHO, sent, deadline=soon(channel)) == b"!"


async def test_an_idle_connection_is_closed_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.http2.dialled.IDLE_SECONDS", SOON)
    async with scripted(answering(lambda i: answer(i, b"!"))) as url, calling(url) as channel:
        assert await call_echo(channel) == b"!"
        await until(lambda: channel.connections == 0 and not channel._open)
        assert await call_echo(channel) == b"!"


async def test_a_connection_that_is_too_old_ends_its_calls_and_has_no_new_one() -> None:
    methods = Methods()
    async with serving(methods) as served:
        channel = Channel(f"http://127.0.0.1:{served.port}", max_age=1000.0)
        stream = await channel.stream(b"/test.Service/Talk", deadline=soon(channel))
        (first,) = channel._open
        now = asyncio.get_running_loop().time()
        assert now + 700.0 < first.retires_at <= now + 1000.0
        assert await call_echo(channel) == b"?"
        assert len(channel._open) == 1
        first.retires_at = now
        assert await call_echo(channel) == b"?"
        assert first.retired
        assert len(channel._open) == 2
        await stream.write(b"hello")
        assert await stream.read() == b"hello"
        stream.half_close()
        assert await stream.read() is None
        await until(lambda: first not in channel._open)
        await channel.aclose()


async def test_a_closed_channel_ends_pending_calls_and_answers_a_late_call() -> None:
    methods = Methods()
    async with serving(methods) as served:
        channel = Channel(f"http://127.0.0.1:{served.port}")
        stream = await channel.stream(b"/test.Service/Talk", deadline=soon(channel))
        await channel.aclose()
        await stream.write(b"hello")
        assert await stream.read() == b"hello"
        assert await call_echo(channel) == b"?"
        stream.half_close()
        assert await stream.read() is None
        await until(lambda: not channel._open)
        with pytest.raises(RuntimeError):
            await stream.write(b"more")


async def test_heads_that_differ_from_call_to_call() -> None:
    """Tracing gives each call its own: the server's memory of heads is bounded, and mistakes none for another."""
    seen = []

    class Seeing(Methods):
        async def echo(self, call: object) -> None:
            seen.append(self.seen[-1].metadata["x-call"])
            await super().echo(self.seen[-1])

    async with serving(Seeing()) as served, calling(f"http://127.0.0.1:{served.port}") as channel:
        for i in range(100):
            await channel.unary(ECHO, b"", encode_fields([("x-call", str(i // 2))]), soon(channel))
    assert seen == [str(i // 2) for i in range(100)]


async def test_a_server_of_ours_that_drains_loses_no_call_of_a_client_of_ours() -> None:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        servers = [Server(Methods(), Limits(lull=SOON)) for _ in range(4)]
        servers[0].listen_socket(bound)
        async with calling(f"http://127.0.0.1:{bound.getsockname()[1]}") as channel:
            stopping = asyncio.Event()

            async def load() -> int:
                count = 0
                while not stopping.is_set():
                    assert await call_echo(channel) == b"?"
                    count += 1
                    await asyncio.sleep(0.001)  # virtual time passes only in a pause
                return count

            loads = [asyncio.create_task(load()) for _ in range(8)]
            for old, new in pairwise(servers):
                await until(lambda old=old: len(old.handler.seen) > 50)  # type: ignore[misc]
                draining = asyncio.create_task(old.drain(PATIENCE))
                await until(lambda old=old: old.draining)  # type: ignore[misc]
                new.listen_socket(bound)
                assert await draining
            stopping.set()
            assert all(await asyncio.gather(*loads))
        for server in servers:
            await server.aclose()
        await until(lambda: not any(server.connections for server in servers))


@pytest.mark.parametrize("seed", range(3))
async def test_noise_ends_every_call(seed: int) -> None:
    rng = random.Random(seed)

    def noise(stream_id: int) -> bytes:
        whole = rng.choice([answer(stream_id, b"!" * 30), head(stream_id) + trailers(stream_id, "3")])
        return mutated(whole, rng, rng.randint(1, 4)) or b"\0"

    async with scripted(answering(noise)) as url, calling(url) as channel:
        for _ in range(30):
            with contextlib.suppress(GrpcError, InferenceError):
                await call_echo(channel, Deadline(channel.now() + PATIENCE, SOON, SOON))
        for connection in channel._open:
            assert not connection.streams
