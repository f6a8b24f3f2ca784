"""Every wait has an end, and every request that was begun has exactly one."""

import asyncio
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from adapters.http1.connection import Connection
from adapters.http1.message import Request, Response
from adapters.http1.server import Limits, Server
from tests.adapters.http1.raw import PATIENCE, Echo, Raw, Served, get, post, serving, until
from tests.support.tls import client_side

SOON = 0.05
TINY = 4096


class Body:
    """A stream that counts its outcomes; each piece waits for `gate`."""

    def __init__(self, pieces: int, size: int = 5, *, gated: bool = False) -> None:
        self.piece = b"x" * size
        self.left = pieces
        self.pulled = 0
        self.closed = 0
        self.cleaned_up = 0
        self.gate = asyncio.Semaphore(0)
        self.gated = gated

    def __aiter__(self) -> "Body":
        return self

    async def __anext__(self) -> bytes:
        if self.gated:
            await self.gate.acquire()
        if self.left == 0:
            raise StopAsyncIteration
        self.left -= 1
        self.pulled += 1
        return self.piece

    async def aclose(self) -> None:
        self.closed += 1
        await asyncio.sleep(SOON / 10)  # an upstream takes a moment to be let go
        self.cleaned_up += 1


class Streams:
    """Answers with one body."""

    def __init__(self, body: Body) -> None:
        self.body = body

    async def __call__(self, request: Request) -> Response:
        return Response(200, body=self.body)


class Hangs:
    """Never answers; knows how it ended."""

    def __init__(self) -> None:
        self.begun = 0
        self.cancelled = 0

    async def __call__(self, request: Request) -> Response:
        self.begun += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        raise AssertionError


@asynccontextmanager
async def narrow(served: Served) -> AsyncIterator[tuple[Raw, Connection]]:
    """A client behind small socket buffers, so that unread bytes stay at the server."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, TINY)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", served.port))
    client = Raw(*await asyncio.open_connection(sock=sock, limit=TINY))
    connection = await served.accepted()
    connection._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, TINY)
    try:
        yield client, connection
    finally:
        client.close()


# ── a client that sends too slowly ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("start", [b"G", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nX-A: b"])
async def test_a_head_that_stops_is_answered_408(start: bytes) -> None:
    async with serving(Echo(), Limits(head_timeout=SOON)) as served:
        client = await served.connect()
        client.send(start)
        [reply] = await client.replies()
    assert (reply.status, reply.headers["connection"]) == (408, "close")


async def test_a_head_that_drips_gets_no_more_time() -> None:
    async with serving(Echo(), Limits(head_timeout=SOON)) as served:
        client = await served.connect()
        client.send(b"GET / HTTP/1.1\r\nX-A: ")
        answered = asyncio.create_task(client.reply())
        async with asyncio.timeout(PATIENCE):
            while not answered.done():
                client.send(b"a")
                await asyncio.sleep(SOON / 10)
        assert (await answered).status == 408


async def test_the_head_of_a_second_request_has_the_same_time() -> None:
    async with serving(Echo(), Limits(head_timeout=SOON)) as served:
        client = await served.connect()
        client.send(get() + b"GET /")
        assert [reply.status for reply in await client.replies()] == [200, 408]


async def test_a_silent_client_is_disconnected() -> None:
    async with serving(Echo(), Limits(head_timeout=SOON)) as served:
        client = await served.connect()
        assert await client.replies() == []


async def test_a_client_that_falls_silent_is_disconnected() -> None:
    async with serving(Echo(), Limits(keepalive_timeout=SOON)) as served:
        client = await served.connect()
        client.send(get())
        assert [reply.status for reply in await client.replies()] == [200]


async def test_a_body_that_stops_is_answered_408() -> None:
    async with serving(Echo(), Limits(body_timeout=SOON)) as served:
        client = await served.connect()
        client.send(post("Content-Length: 10", body=b"abc"))
        [reply] = await client.replies()
    assert (reply.status, reply.headers["connection"]) == (408, "close")


@pytest.mark.parametrize(("rate", "status"), [(10_000, 408), (1, 200)])
async def test_a_body_must_keep_the_least_rate(rate: int, status: int) -> None:
    async with serving(Echo(), Limits(body_timeout=SOON, min_body_rate=rate)) as served:
        client = await served.connect()
        client.send(post("Content-Length: 60"))
        answered = asyncio.create_task(client.reply())
        for _ in range(60):
            if not answered.done():
                client.send(b"a")
                await asyncio.sleep(SOON / 5)
        assert (await answered).status == status


# ── a client that reads too slowly ────────────────────────────────────────────────────────────────────────


@pytest.mark.waits
async def test_a_stream_is_pulled_only_as_fast_as_it_is_read() -> None:
    body = Body(pieces=1000, size=8192)
    async with serving(Streams(body)) as served, narrow(served) as (client, connection):
        client.send(get())
        await until(lambda: connection._writing_paused)
        before = body.pulled
        await asyncio.sleep(SOON)  # time in which a server that does not wait would pull on
        assert body.pulled == before < 200
        await client.reply()
        assert body.pulled == 1000


@pytest.mark.parametrize("whole", [True, False])
async def test_a_client_that_does_not_read_is_cut_off(whole: bool) -> None:
    body = Body(pieces=1000, size=8192)

    async def handler(request: Request) -> Response:
        return Response(200, body=b"x" * 8_192_000 if whole else body)

    async with serving(handler, Limits(send_timeout=SOON)) as served, narrow(served) as (client, _):
        client.send(get())
        await until(lambda: not served.server.connections)
        assert len(await client.rest()) < 1_000_000
    assert body.closed == (0 if whole else 1)


@pytest.mark.virtual
async def test_a_client_that_reads_slowly_is_not() -> None:
    size = 300_000

    async def handler(request: Request) -> Response:
        return Response(200, body=b"x" * size)

    async with serving(handler, Limits(send_timeout=0.2)) as served, narrow(served) as (client, _):
        client.send(get("/", "Connection: close"))
        loop = asyncio.get_running_loop()
        begun, taken = loop.time(), 0
        while data := await client.reader.read(TINY):
            taken += len(data)
            if loop.time() - begun < 0.8:
                await asyncio.sleep(0.02)
        assert taken > size
        assert loop.time() - begun > 0.6


@pytest.mark.parametrize("request_", [get(), get("/", "Connection: close")], ids=["kept alive", "closing"])
async def test_the_last_bytes_of_an_answer_are_not_waited_for_for_ever(
    request_: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.http1.connection.LINGER_SECONDS", SOON)

    async def handler(request: Request) -> Response:
        return Response(200, body=b"x" * 50_000)

    limits = Limits(keepalive_timeout=SOON, send_timeout=SOON)
    async with serving(handler, limits) as served, narrow(served) as (client, connection):
        client.send(request_)
        await until(lambda: connection._transport.get_write_buffer_size() > 0)
        await until(lambda: not served.server.connections)


# ── a client that leaves ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("data", [b"", b"GET /", get(), get() + b"GET /"])
async def test_leaving_between_requests_leaves_nothing_behind(data: bytes) -> None:
    async with serving(Echo()) as served:
        client = await served.connect()
        await served.accepted()
        client.send(data)
        if data.startswith(get()):
            await client.reply()
        client.close()
        await until(lambda: not served.server.connections)


@pytest.mark.parametrize("data", [get(), get() * 3, post("Content-Length: 9", body=b"abc"), get() + b"GET /"])
async def test_leaving_cancels_the_handler_once(data: bytes) -> None:
    hangs = Hangs()
    async with serving(hangs) as served:
        client = await served.connect()
        client.send(data)
        await until(lambda: hangs.begun == 1)
        client.close()
        await until(lambda: not served.server.connections and hangs.cancelled == 1)
    assert (hangs.begun, hangs.cancelled) == (1, 1)


async def test_leaving_while_the_body_is_awaited_cancels_the_handler() -> None:
    echo = Echo()
    async with serving(echo) as served:
        client = await served.connect()
        client.send(post("Content-Length: 9", body=b"abc"))
        await until(lambda: echo.seen == ["/"])
        client.close()
        await until(lambda: not served.server.connections)


@pytest.mark.parametrize("pieces", [0, 1])
async def test_leaving_a_stream_closes_it_once(pieces: int) -> None:
    body = Body(pieces=9, gated=True)
    async with serving(Streams(body)) as served:
        client = await served.connect()
        client.send(get())
        for _ in range(pieces):
            body.gate.release()
        await until(lambda: body.pulled == pieces and len(served.server.connections) == 1)
        await served.accepted()
        await asyncio.sleep(0)
        client.close()
        await until(lambda: body.cleaned_up == 1)
    assert (body.closed, body.cleaned_up) == (1, 1)


@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
async def test_a_whole_stream_is_closed_once(method: bytes) -> None:
    body = Body(pieces=3)
    async with serving(Streams(body)) as served:
        client = await served.connect()
        client.send(get("/", "Connection: close").replace(b"GET", method))
        reply = await client.reply(method.decode())
        await until(lambda: body.cleaned_up == 1)
    assert reply.chunks == ([body.piece] * 3 if method == b"GET" else [])
    assert body.closed == 1


async def test_a_stream_that_fails_ends_without_an_end(reports: list[dict[str, object]]) -> None:
    class Fails(Body):
        async def __anext__(self) -> bytes:
            if self.pulled == 2:
                raise RuntimeError("lost")
            return await super().__anext__()

    body = Fails(pieces=9)
    async with serving(Streams(body)) as served:
        client = await served.connect()
        client.send(get())
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await client.reply()
    assert body.closed == 1
    assert str(reports.pop()["exception"]) == "lost"


async def test_a_handler_with_a_cancelled_wait_drops_the_connection() -> None:
    async def handler(request: Request) -> Response:
        raise asyncio.CancelledError

    async with serving(handler) as served:
        client = await served.connect()
        client.send(get())
        assert await client.rest() == b""


# ── leaving a client ──────────────────────────────────────────────────────────────────────────────────────


async def test_drain_closes_idle_connections_and_lets_the_rest_finish() -> None:
    body = Body(pieces=2, gated=True)
    async with serving(Streams(body)) as served:
        busy, idle = await served.connect(), await served.connect()
        await until(lambda: len(served.server.connections) == 2)
        busy.send(get())
        body.gate.release()
        await until(lambda: body.pulled == 1)
        drained = asyncio.create_task(served.server.drain(PATIENCE))
        assert await idle.replies() == []
        assert not drained.done()
        with pytest.raises(ConnectionRefusedError):
            await served.connect()
        body.gate.release()
        body.gate.release()
        assert (await busy.reply()).chunks == [body.piece] * 2
        # The head that announced keep-alive was sent before the drain; the server closes the connection all the same.
        assert await busy.replies() == []
        busy.close()
        assert await drained


async def test_drain_announces_the_close_in_later_answers() -> None:
    requested = asyncio.Event()
    answer = asyncio.Event()

    async def handler(request: Request) -> Response:
        requested.set()
        await answer.wait()
        return Response(200)

    async with serving(handler) as served:
        client = await served.connect()
        client.send(get())
        await requested.wait()
        drained = asyncio.create_task(served.server.drain(PATIENCE))
        await until(lambda: served.server.draining)
        answer.set()
        [reply] = await client.replies()
        assert reply.headers["connection"] == "close"
        client.close()
        assert await drained


async def test_drain_gives_up_after_its_grace() -> None:
    hangs = Hangs()
    async with serving(hangs) as served:
        client = await served.connect()
        client.send(get())
        await until(lambda: hangs.begun == 1)
        assert not await served.server.drain(SOON)
        assert hangs.cancelled == 0
        await served.server.aclose()
        assert hangs.cancelled == 1


async def test_drain_of_nothing_is_over_at_once() -> None:
    async with serving(Echo()) as served:
        assert await served.server.drain(0)


@pytest.mark.parametrize("tls", [False, True])
async def test_drain_answers_connections_that_were_not_accepted_yet(tls: bool, certificate: Path) -> None:
    async with serving(Echo(), certificate=certificate if tls else None) as served:
        with socket.create_connection(("127.0.0.1", served.port), PATIENCE) as sock:  # by the kernel alone
            drained = asyncio.create_task(served.server.drain(PATIENCE))
            await until(lambda: served.server.draining)
            context = client_side(certificate) if tls else None
            name = "127.0.0.1" if tls else None
            client = Raw(*await asyncio.open_connection(sock=sock.dup(), ssl=context, server_hostname=name))
            client.send(get())
            [reply] = await client.replies()
            client.close()
        assert (reply.status, reply.headers["connection"]) == (200, "close")
        assert await drained


@pytest.mark.waits
async def test_drain_leaves_an_idle_connection_to_the_request_on_its_way() -> None:
    async with serving(Echo()) as served:
        client = await served.connect()
        client.send(get())
        assert (await client.reply()).status == 200
        drained = asyncio.create_task(served.server.drain(PATIENCE))
        await until(lambda: served.server.draining)
        await asyncio.sleep(SOON)
        client.send(get())
        [reply] = await client.replies()
        assert (reply.status, reply.headers["connection"]) == (200, "close")
        client.close()
        assert await drained


@pytest.mark.parametrize("tls", [False, True])
async def test_aclose_waits_for_the_cleanup_of_cancelled_requests(tls: bool, certificate: Path) -> None:
    body = Body(pieces=9, gated=True)
    async with serving(Streams(body), certificate=certificate if tls else None) as served:
        client = await served.connect()
        client.send(get())
        body.gate.release()
        await until(lambda: body.pulled == 1)
        await served.server.aclose()
        assert (body.closed, body.cleaned_up) == (1, 1)


async def test_aclose_waits_for_the_cleanup_after_a_client_that_left() -> None:
    body = Body(pieces=9, gated=True)
    async with serving(Streams(body)) as served:
        client = await served.connect()
        client.send(get())
        body.gate.release()
        await until(lambda: body.pulled == 1)
        client.close()
        await until(lambda: body.closed == 1)
        await served.server.aclose()
        assert body.cleaned_up == 1


# ── listeners ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_connection_beyond_the_limit_has_an_error() -> None:
    """All other connections have pending requests."""
    async with serving(Echo(), Limits(max_connections=2)) as served:
        first, second = await served.connect(), await served.connect()
        for client in (first, second):
            client.send(post("Content-Length: 3", body=b"a"))
        await until(lambda: [c.spare for c in served.server.connections] == [False, False])
        third = await served.connect()
        [reply] = await third.replies()
        assert (reply.status, reply.headers["connection"]) == (503, "close")
        third.close()
        for client in (first, second):
            client.send(b"bc")
            assert (await client.reply()).status == 200
        second.close()
        await until(lambda: len(served.server.connections) == 1)
        client = await served.connect()
        client.send(get())
        assert (await client.reply()).status == 200


async def test_servers_that_share_a_socket_come_and_go_and_it_stays() -> None:
    def answers(status: int) -> Server:
        async def handler(_: Request) -> Response:
            return Response(status)

        return Server(handler)

    with socket.create_server(("127.0.0.1", 0)) as bound:
        first, second = answers(201), answers(202)

        async def status() -> int:
            client = Raw(*await asyncio.open_connection(*bound.getsockname()))
            client.send(get("/", "Connection: close"))
            [reply] = await client.replies()
            client.close()
            return reply.status

        listener = first.listen_socket(bound)
        assert await status() == 201
        first.leave_socket(listener)
        waiting = asyncio.create_task(status())  # nothing accepts the connection: it waits in the kernel
        second.listen_socket(bound)
        assert await waiting == 202
        await second.drain(PATIENCE)
        first.listen_socket(bound)
        assert await status() == 201
        await first.aclose()
        await second.aclose()


async def test_a_unix_socket_is_the_owners_alone_and_ends_with_the_server(tmp_path: Path) -> None:
    path = tmp_path / "s"
    server = Server(Echo())
    await server.listen_unix(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    client = Raw(*await asyncio.open_unix_connection(str(path)))
    client.send(get("/", "Connection: close"))
    assert [reply.status for reply in await client.replies()] == [200]
    client.close()
    await server.aclose()
    assert not path.exists()


async def test_a_unix_socket_that_a_successor_took_over_stays(tmp_path: Path) -> None:
    path = tmp_path / "s"
    old, new = Server(Echo()), Server(Echo())
    await old.listen_unix(path)
    await new.listen_unix(path)
    await old.aclose()
    client = Raw(*await asyncio.open_unix_connection(str(path)))
    client.send(get("/", "Connection: close"))
    assert [reply.status for reply in await client.replies()] == [200]
    client.close()
    await new.aclose()
