"""The client against upstreams that misbehave in every way that one can on a wire."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from adapters.errors import BackendError, DeadlineError, InferenceError, TransportError, Unavailable, UpstreamTimeout
from adapters.http1.client import Client, ClientResponse
from adapters.http1.exchange import HIGH_WATER, MAX_HEAD
from adapters.http1.message import encode_fields
from adapters.http1.server import Server
from adapters.types import Deadline
from tests.adapters.http1.raw import Echo, until
from tests.adapters.http1.scripted import OK, Peer, Play, ReceivedRequest, always_ok, answers, scripted
from tests.support.tls import client_side, make_certificate, server_side

SOON = 0.05
LONG = 10.0
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CLOSED = b"HTTP/1.1 200 OK\r\n\r\n"


def within(*, total: float = LONG, first_byte: float = LONG, idle: float = LONG) -> Deadline:
    return Deadline(asyncio.get_running_loop().time() + total, first_byte, idle)


async def send_request(client: Client, body: bytes = b"", deadline: Deadline | None = None) -> ClientResponse:
    return await client.request(b"POST", b"/", b"", body, deadline or within())


async def body_of_answer(client: Client) -> bytes:
    return await (await send_request(client)).read()


@asynccontextmanager
async def calling(play: Play) -> AsyncIterator[Client]:
    async with scripted(play) as upstream:
        client = Client(upstream.url)
        yield client
        await client.aclose()


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_request_is_sent_unchanged() -> None:
    received: list[ReceivedRequest] = []

    async def play(peer: Peer) -> None:
        received.append(await peer.request())
        peer.send(OK)

    async with scripted(play) as upstream:
        client = Client(f"{upstream.url}/base/")
        fields = encode_fields([("x-a", "b"), ("x-c", "d\xe9\u20ac")])
        response = await client.request(b"POST", client.base_path.encode() + b"/a", fields, b"body", within())
        assert (response.status, await response.read()) == (200, b"ok")
        await client.aclose()
    host = f"127.0.0.1:{upstream.port}"
    headers = {"host": host, "x-a": "b", "x-c": "d\xe9?", "accept-encoding": "identity", "content-length": "4"}
    assert received == [ReceivedRequest("POST /base/a HTTP/1.1", headers, b"body")]


@pytest.mark.parametrize("value", ["a\r\nb: c", "a\nb", "a\rb"])
async def test_a_request_cannot_be_split(value: str) -> None:
    with pytest.raises(ValueError, match="line break"):
        encode_fields([("x-a", value)])


# ── the pool ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_connection_is_used_again() -> None:
    async with scripted(always_ok) as upstream:
        client = Client(upstream.url)
        for _ in range(5):
            assert await body_of_answer(client) == b"ok"
        assert (upstream.accepted, client.connections) == (1, 1)
        await client.aclose()


async def test_an_answer_that_is_whole_but_unread_gives_its_connection_back() -> None:
    async with scripted(always_ok) as upstream:
        client = Client(upstream.url)
        for _ in range(3):
            (await send_request(client)).close()
        assert upstream.accepted == 1
        await client.aclose()


async def test_a_large_answer_that_is_whole_but_unread_does_not_stall_the_next() -> None:
    size = HIGH_WATER + 1
    large = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size

    async def always_large(peer: Peer) -> None:
        while True:
            await peer.request()
            peer.send(large)

    async with scripted(always_large) as upstream:
        client = Client(upstream.url)
        response = await send_request(client)
        exchange = next(iter(client._open))
        await until(lambda: exchange.complete)
        response.close()
        second = await send_request(client, deadline=within(first_byte=1.0))
        assert second.status == 200
        second.close()
        await client.aclose()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        OK + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
        OK + b"garbage",
        b"HTTP/1.1 500 Failed\r\nContent-Length: 2\r\n\r\nok",
    ],
    ids=["close", "HTTP/1.0", "a second answer", "garbage after it", "a failure, after which uvicorn closes"],
)
async def test_a_connection_that_cannot_be_trusted_is_not_used_again(answer: bytes) -> None:
    async def play(peer: Peer) -> None:
        await peer.request()
        peer.send(answer)
        await peer.left()

    async with scripted(play) as upstream:
        client = Client(upstream.url)
        for count in (1, 2):
            response = await send_request(client)
            assert await response.read() == b"ok"
            assert upstream.accepted == count
        await client.aclose()


async def test_a_second_answer_does_not_change_the_first() -> None:
    second = b"HTTP/1.1 500 Oops\r\nX-A: b\r\nContent-Length: 4\r\n\r\nevil"
    async with calling(answers(OK + second)) as client:
        response = await send_request(client)
        assert (response.status, dict(response.headers)) == (200, {"content-length": "2"})
        assert await response.read() == b"ok"


async def test_unsolicited_data_drops_an_idle_connection() -> None:
    async def play(peer: Peer) -> None:
        await peer.request()
        peer.send(OK)
        await release.wait()
        peer.send(OK)
        await peer.left()

    release = asyncio.Event()
    async with scripted(play) as upstream:
        client = Client(upstream.url)
        assert await body_of_answer(client) == b"ok"
        release.set()
        await until(lambda: client.connections == 0)
        assert await body_of_answer(client) == b"ok"
        assert upstream.accepted == 2
        await client.aclose()


async def test_a_connection_closed_while_idle_is_forgotten() -> None:
    async with scripted(answers(OK)) as upstream:
        client = Client(upstream.url)
        for _ in range(3):
            assert await body_of_answer(client) == b"ok"
            await until(lambda: client.connections == 0)
        assert upstream.accepted == 3


async def test_an_idle_connection_is_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.http1.client.KEEPALIVE_SECONDS", SOON)
    async with scripted(always_ok) as upstream:
        client = Client(upstream.url)
        assert await body_of_answer(client) == b"ok"
        await until(lambda: client.connections == 0 and upstream.left == 1)


def stale_after(first: bytes) -> tuple[Play, list[int]]:
    """Answers one request, and breaks on the second after `first`; fresh connections do the same."""
    requests = [0]

    async def play(peer: Peer) -> None:
        await peer.request()
        requests[0] += 1
        peer.send(OK)
        await peer.request()
        requests[0] += 1
        peer.send(first)

    return play, requests


@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"PUT", b"DELETE", b"POST", b"PATCH"])
async def test_only_an_idempotent_request_is_sent_again_on_a_connection_that_breaks(method: bytes) -> None:
    """The upstream has read the second request: whether it has processed it is unknown (RFC 9110 9.2.2)."""
    play, requests = stale_after(b"")
    async with scripted(play) as upstream:
        client = Client(upstream.url)
        assert await body_of_answer(client) == b"ok"
        second = client.request(method, b"/", b"", b"", within())
        if method in (b"POST", b"PATCH"):
            with pytest.raises(TransportError):
                await second
            assert requests[0] == 2
        else:
            assert await (await second).read() == b"ok"
            assert (upstream.accepted, requests[0]) == (2, 3)
        await client.aclose()


async def test_a_connection_that_the_upstream_has_closed_is_not_used() -> None:
    """The kernel knows it before the loop: a request that nothing has read is safe on a new connection."""
    read, closed = asyncio.Event(), asyncio.Event()

    async def play(peer: Peer) -> None:
        await peer.request()
        peer.send(OK)
        await read.wait()
        peer.close()
        await peer.writer.wait_closed()
        closed.set()

    async with scripted(play) as upstream:
        client = Client(upstream.url)
        assert await body_of_answer(client) == b"ok"
        (connection,) = client._idle
        connection._transport.pause_reading()  # the loop does not see the end
        connection.rested_at -= 1.0
        read.set()
        await closed.wait()
        assert await body_of_answer(client) == b"ok"
        assert upstream.accepted == 2
        await client.aclose()


async def test_a_request_is_not_replayed_after_one_byte_of_its_answer() -> None:
    play, requests = stale_after(b"H")
    async with scripted(play) as upstream:
        client = Client(upstream.url)
        assert await body_of_answer(client) == b"ok"
        with pytest.raises(TransportError):
            await body_of_answer(client)
        assert (upstream.accepted, requests[0]) == (1, 2)


async def test_a_request_is_replaced_only_once() -> None:
    async def play(peer: Peer) -> None:
        await peer.request()
        if upstream.accepted == 1:
            peer.send(OK)
            await peer.request()

    async with scripted(play) as upstream:
        client = Client(upstream.url)
        assert await body_of_answer(client) == b"ok"
        with pytest.raises(TransportError):
            await client.request(b"GET", b"/", b"", b"", within())
        assert upstream.accepted == 2


async def test_a_request_that_timed_out_is_not_replayed() -> None:
    async def play(peer: Peer) -> None:
        await peer.request()
        peer.send(OK)
        await peer.left()

    async with scripted(play) as upstream:
        client = Client(upstream.url)
        assert await body_of_answer(client) == b"ok"
        with pytest.raises(UpstreamTimeout):
            await send_request(client, deadline=within(first_byte=SOON))
        assert upstream.accepted == 1


async def test_more_connections_than_allowed_are_refused() -> None:
    async def play(peer: Peer) -> None:
        await peer.request()
        await release.wait()
        peer.send(OK)
        await peer.left()

    release = asyncio.Event()
    async with scripted(play) as upstream:
        client = Client(upstream.url, max_connections=2)
        busy = [asyncio.create_task(body_of_answer(client)) for _ in range(2)]
        await until(lambda: upstream.accepted == 2)
        with pytest.raises(Unavailable):
            await send_request(client)
        release.set()
        assert await asyncio.gather(*busy) == [b"ok", b"ok"]
        await client.aclose()


# ── connecting ────────────────────────────────────────────────────────────────────────────────────────────


def unused_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


async def test_a_refused_connection_is_a_transport_error() -> None:
    with pytest.raises(TransportError) as caught:
        await send_request(Client(f"http://127.0.0.1:{unused_port()}"))
    assert "127.0.0.1" not in caught.value.message


@pytest.mark.parametrize(
    ("total", "expected"), [(LONG, UpstreamTimeout), (SOON / 2, DeadlineError), (-1.0, DeadlineError)]
)
async def test_a_connection_that_is_not_accepted_times_out(total: float, expected: type[InferenceError]) -> None:
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for sock in (first, second):  # a full backlog: the kernel answers no further one
            sock.setblocking(False)
            sock.connect_ex(listener.getsockname())
        client = Client(f"http://127.0.0.1:{listener.getsockname()[1]}", connect_timeout=SOON)
        with pytest.raises(expected):
            await send_request(client, deadline=within(total=total))
        assert client.connections == 0


async def test_a_connection_that_is_accepted_and_dropped_is_not_counted() -> None:
    async def play(peer: Peer) -> None:
        peer.writer.transport.abort()

    async with scripted(play) as upstream:
        client = Client(upstream.url, max_connections=3)
        for _ in range(10):
            with pytest.raises(TransportError):
                await send_request(client)
        await until(lambda: client.connections == 0)


async def test_a_unix_socket(tmp_path: Path) -> None:
    async with scripted(always_ok, path=str(tmp_path / "s")):
        client = Client(f"unix:{tmp_path}/s")
        assert (await body_of_answer(client), client.base_path) == (b"ok", "")
        await client.aclose()
    with pytest.raises(TransportError):
        await send_request(Client(f"unix:{tmp_path}/none"))


async def test_an_ipv6_literal() -> None:
    hosts: list[str] = []

    async def play(peer: Peer) -> None:
        hosts.append((await peer.request()).headers["host"])
        peer.send(OK)

    async with scripted(play, host="::1") as upstream:
        client = Client(f"http://[::1]:{upstream.port}")
        assert await body_of_answer(client) == b"ok"
    assert hosts == [f"[::1]:{upstream.port}"]


# ── waiting ───────────────────────────────────────────────────────────────────────────────────────────────


async def silence(peer: Peer) -> None:
    await peer.request()
    await peer.left()


async def half_a_head(peer: Peer) -> None:
    await peer.request()
    peer.send(b"HTTP/1.1 200 OK\r\n")
    await peer.left()


async def half_a_body(peer: Peer) -> None:
    await peer.request()
    peer.send(CHUNKED + b"2\r\nok\r\n")
    await peer.left()


async def half_a_body_to_the_close(peer: Peer) -> None:
    await peer.request()
    peer.send(CLOSED + b"ok")
    await peer.left()


@pytest.mark.parametrize("play", [silence, half_a_head])
async def test_the_first_byte_has_its_time(play: Play) -> None:
    async with calling(play) as client:
        with pytest.raises(UpstreamTimeout, match="begin"):
            await send_request(client, deadline=within(first_byte=SOON))
        await until(lambda: client.connections == 0)


@pytest.mark.parametrize("play", [half_a_body, half_a_body_to_the_close])
async def test_the_next_piece_has_its_time(play: Play) -> None:
    async with calling(play) as client:
        response = await send_request(client, deadline=within(idle=SOON))
        assert await response.piece() == b"ok"
        with pytest.raises(UpstreamTimeout, match="middle"):
            await response.piece()
        await until(lambda: client.connections == 0)


async def test_patience_replaces_the_idle_limit() -> None:
    async with calling(half_a_body) as client:
        response = await send_request(client, deadline=within(idle=LONG))
        assert await response.piece(LONG) == b"ok"
        with pytest.raises(UpstreamTimeout):
            await response.piece(SOON)


@pytest.mark.parametrize("play", [silence, half_a_head])
async def test_the_whole_request_has_its_time_before_the_head(play: Play) -> None:
    async with calling(play) as client:
        with pytest.raises(DeadlineError):
            await send_request(client, deadline=within(total=SOON))


@pytest.mark.parametrize("play", [half_a_body, half_a_body_to_the_close])
async def test_the_whole_request_has_its_time_in_the_body(play: Play) -> None:
    async with calling(play) as client:
        response = await send_request(client, deadline=within(total=2 * SOON))
        with pytest.raises(DeadlineError):
            await response.read()


@pytest.mark.parametrize("play", [half_a_body, half_a_body_to_the_close])
async def test_time_that_runs_out_unwatched_is_no_end(play: Play) -> None:
    """The reader is busy elsewhere when the deadline passes: the received bytes are then not a whole answer."""
    async with calling(play) as client:
        response = await send_request(client, deadline=within(total=2 * SOON))
        assert await response.piece() == b"ok"
        await until(lambda: client.connections == 0)
        with pytest.raises(DeadlineError):
            await response.piece()


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────

WHOLE = {
    "length": (OK, b"ok"),
    "empty": (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
    "chunks": (CHUNKED + b"1\r\no\r\n1;x\r\nk\r\n0\r\nX-T: y\r\n\r\n", b"ok"),
    "until the close": (CLOSED + b"ok", b"ok"),
    "HTTP/1.0 until the close": (b"HTTP/1.0 200 OK\r\n\r\nok", b"ok"),
    "after 100": (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, b"ok"),
    "after many of 1xx": (b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" * 5 + OK, b"ok"),
    "without a reason": (b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", b"ok"),
}


@pytest.mark.parametrize(("answer", "body"), WHOLE.values(), ids=WHOLE.keys())
async def test_whole(answer: bytes, body: bytes) -> None:
    async with calling(answers(answer)) as client:
        response = await send_request(client)
        assert (response.status, await response.read(), "link" in response.headers) == (200, body, False)
        assert await response.piece() == b""


@pytest.mark.parametrize(("answer", "body"), WHOLE.values(), ids=WHOLE.keys())
async def test_whole_byte_by_byte(answer: bytes, body: bytes) -> None:
    async def play(peer: Peer) -> None:
        await peer.request()
        for byte in answer:
            peer.send(bytes([byte]))
            await asyncio.sleep(0)

    async with calling(play) as client:
        assert await body_of_answer(client) == body


@pytest.mark.parametrize("status", [204, 304])
async def test_a_status_without_a_body_needs_no_length(status: int) -> None:
    async with calling(answers(b"HTTP/1.1 %d X\r\n\r\n" % status)) as client:
        response = await send_request(client)
        assert (response.status, await response.read()) == (status, b"")


BROKEN: dict[str, tuple[bytes, type[InferenceError]]] = {
    "nothing": (b"", TransportError),
    "half a head": (b"HTTP/1.1 200 OK\r\n", TransportError),
    "only 100": (b"HTTP/1.1 100 Continue\r\n\r\n", TransportError),
    "length not reached": (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok", TransportError),
    "no last chunk": (CHUNKED + b"2\r\nok\r\n", TransportError),
    "half a chunk": (CHUNKED + b"9\r\nok", TransportError),
    "no end of trailers": (CHUNKED + b"0\r\n", TransportError),
    "garbage": (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", BackendError),
    "HTTP/2.0": (b"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok", BackendError),
    "HTTP/0.9": (b"HTTP/0.9 200 OK\r\nContent-Length: 2\r\n\r\nok", BackendError),
    "HTTP/1.7 in a 1xx": (b"HTTP/1.7 103 Early\r\n\r\n" + OK, BackendError),
    "HTML": (b"<html>hello</html>\r\n\r\n", BackendError),
    "bad chunk size": (CHUNKED + b"xyz\r\nok\r\n", BackendError),
    "chunk longer than its size": (CHUNKED + b"2\r\nokok\r\n0\r\n\r\n", BackendError),
    "two lengths": (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok", BackendError),
    "length and chunks": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        BackendError,
    ),
    "folded field": (b"HTTP/1.1 200 OK\r\nX-A: b\r\n c\r\nContent-Length: 2\r\n\r\nok", BackendError),
    "bare LF": (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", BackendError),
    "switching protocols": (b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n", BackendError),
    "huge field": (b"HTTP/1.1 200 OK\r\nX-A: " + b"a" * (MAX_HEAD + 1), BackendError),
    "huge head": (b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * (MAX_HEAD // 8 + 1), BackendError),
    "1xx for ever": (b"HTTP/1.1 102 Processing\r\n\r\n" * (MAX_HEAD // 27 + 1), BackendError),
    "huge trailer": (CHUNKED + b"2\r\nok\r\n0\r\nX-T: " + b"a" * 2**20, BackendError),
}


@pytest.mark.parametrize(("answer", "expected"), BROKEN.values(), ids=BROKEN.keys())
async def test_broken(answer: bytes, expected: type[InferenceError]) -> None:
    async def play(peer: Peer) -> None:
        await peer.request()
        for at in range(0, len(answer), 16384):
            peer.send(answer[at : at + 16384])
            await peer.writer.drain()

    async with calling(play) as client:
        with pytest.raises(expected) as caught:
            await body_of_answer(client)
        assert type(caught.value) is expected
        await until(lambda: client.connections == 0)


async def test_a_reset_is_no_end_of_a_body_that_the_close_ends() -> None:
    async def play(peer: Peer) -> None:
        await peer.request()
        peer.send(CLOSED + b"ok")
        await peer.reader.readexactly(1)
        peer.writer.transport.abort()

    async with scripted(play) as upstream:
        client = Client(upstream.url)
        response = await send_request(client)
        assert await response.piece() == b"ok"
        exchange = next(iter(client._open))
        # Unread input turns the upstream's close into a reset.
        exchange._transport.write(b"x" * 100_000)
        with pytest.raises(TransportError):
            await response.read()


async def test_an_answer_over_the_readers_limit() -> None:
    async with calling(always_ok) as client:
        with pytest.raises(BackendError, match="too large"):
            await (await send_request(client)).read(limit=1)


async def test_repeated_fields_are_joined() -> None:
    async with calling(answers(b"HTTP/1.1 200 OK\r\nX-A: b\r\nx-a: c\r\nContent-Length: 0\r\n\r\n")) as client:
        response = await send_request(client)
        assert response.headers["x-a"] == "b, c"


@pytest.mark.waits
async def test_a_fast_upstream_waits_for_a_slow_reader() -> None:
    sent = 0

    async def play(peer: Peer) -> None:
        nonlocal sent
        await peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 50000000\r\n\r\n")
        for _ in range(500):
            peer.send(b"x" * 100_000)
            await peer.writer.drain()
            sent += 100_000

    async with calling(play) as client:
        response = await send_request(client)
        exchange = next(iter(client._open))
        await until(lambda: exchange._size > HIGH_WATER)
        before = -1
        while sent != before:  # until the sockets' own buffers are full
            before = sent
            await asyncio.sleep(SOON)
        assert exchange._size < 2 * HIGH_WATER + 2**20
        assert sent < 25_000_000
        taken = 0
        while data := await response.piece():
            taken += len(data)
        assert taken == 50_000_000


# ── leaving ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.waits
@pytest.mark.parametrize("play", [silence, half_a_head, half_a_body])
async def test_a_call_that_is_cancelled_drops_its_connection(play: Play) -> None:
    async with scripted(play) as upstream:
        client = Client(upstream.url)
        call = asyncio.create_task(body_of_answer(client))
        await until(lambda: client.connections == 1)
        await asyncio.sleep(SOON)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: upstream.left == 1 and client.connections == 0)


async def test_closing_a_response_early_drops_its_connection() -> None:
    async with scripted(half_a_body) as upstream:
        client = Client(upstream.url)
        response = await send_request(client)
        response.close()
        await until(lambda: upstream.left == 1 and client.connections == 0)
        assert await response.piece() == b""


async def test_aclose_leaves_connections_in_use() -> None:
    async def play(peer: Peer) -> None:
        await peer.request()
        peer.send(CHUNKED)
        await release.wait()
        peer.send(b"2\r\nok\r\n0\r\n\r\n")
        await peer.left()

    release = asyncio.Event()
    async with scripted(play) as upstream:
        client = Client(upstream.url)
        response = await send_request(client)
        await client.aclose()
        release.set()
        assert await response.read() == b"ok"
        await until(lambda: upstream.left == 1 and client.connections == 0)


async def test_a_request_after_aclose_has_a_connection_of_its_own() -> None:
    """It began before a reload took the endpoint away, and this is its second try."""
    async with scripted(always_ok) as upstream:
        client = Client(upstream.url)
        await client.aclose()
        for _ in range(2):
            assert await body_of_answer(client) == b"ok"
        await until(lambda: upstream.left == 2 and client.connections == 0)


async def test_a_dropped_connection_makes_room_at_once() -> None:
    async with scripted(Peer.left) as upstream:
        client = Client(upstream.url, max_connections=1)
        for _ in range(3):
            call = asyncio.create_task(send_request(client))
            await until(lambda: client.connections == 1)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert client.connections == 0
        await until(lambda: upstream.left == 3)


async def test_aclose_closes_idle_connections() -> None:
    async with scripted(always_ok) as upstream:
        client = Client(upstream.url)
        assert await body_of_answer(client) == b"ok"
        await client.aclose()
        await until(lambda: upstream.left == 1 and client.connections == 0)


# ── TLS ───────────────────────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def serving_tls(folder: Path) -> AsyncIterator[int]:
    server = Server(Echo())
    _, port = await server.listen_tcp("127.0.0.1", 0, server_side(folder))
    try:
        yield port
    finally:
        await server.aclose()
        await until(lambda: not server.connections)


async def test_tls_between_our_own(certificate: Path) -> None:
    async with serving_tls(certificate) as port:
        client = Client(f"https://127.0.0.1:{port}", tls=client_side(certificate))
        for _ in range(3):
            response = await send_request(client, b"body" * 100_000)
            assert b"bodybody" in await response.read()
        assert client.connections == 1
        await client.aclose()
        await until(lambda: client.connections == 0)


@pytest.mark.parametrize("own", [True, False], ids=["another authority", "the machine's"])
async def test_tls_with_an_authority_that_is_not_trusted(certificate: Path, own: bool, tmp_path: Path) -> None:
    trusted = client_side(make_certificate(tmp_path / "other")) if own else None
    async with serving_tls(certificate) as port:
        client = Client(f"https://127.0.0.1:{port}", tls=trusted)
        with pytest.raises(TransportError):
            await send_request(client)
        assert client.connections == 0


async def test_tls_of_another_host(certificate: Path) -> None:
    async with serving_tls(certificate) as port:
        client = Client(f"https://localhost:{port}", tls=client_side(certificate))
        with pytest.raises(TransportError):
            await send_request(client)


async def test_tls_towards_a_plain_port(certificate: Path) -> None:
    async with scripted(always_ok) as upstream:
        client = Client(f"https://127.0.0.1:{upstream.port}", tls=client_side(certificate), connect_timeout=SOON)
        with pytest.raises(TransportError):
            await send_request(client)


async def test_tls_cut_without_a_goodbye_is_no_end_of_a_body(certificate: Path) -> None:
    async def play(peer: Peer) -> None:
        await peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok")
        await peer.writer.drain()
        peer.writer.transport.abort()

    async with scripted(play, tls=server_side(certificate)) as upstream:
        client = Client(f"https://127.0.0.1:{upstream.port}", tls=client_side(certificate))
        with pytest.raises(TransportError):
            await body_of_answer(client)
