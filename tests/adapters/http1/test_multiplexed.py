"""HTTP/2 on a server of HTTP/1.1: the same answers, its own floods, and no request inside a request."""

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import h2.exceptions
import h2.settings
import pytest
from hyperframe.frame import DataFrame, PingFrame, PriorityFrame, RstStreamFrame, SettingsFrame, WindowUpdateFrame

from adapters.http1 import multiplexed
from adapters.http1.message import Request, Response
from adapters.http1.multiplexed import Multiplexed
from adapters.http1.server import Limits, Server
from tests.adapters.http1.http2_client import Http2Client, head, http2_client
from tests.adapters.http1.raw import until
from tests.support.tls import client_side, server_side

SEED = 20
GRACE = 5.0


class Pieces:
    """A body in pieces; `closed` is set when the server gives it up or has taken it."""

    def __init__(self, pieces: list[bytes], gate: asyncio.Event | None = None) -> None:
        self.pieces = list(pieces)
        self.made = 0
        self.closed = asyncio.Event()
        self._gate = gate

    def __aiter__(self) -> "Pieces":
        return self

    async def __anext__(self) -> bytes:
        if self._gate is not None:
            await self._gate.wait()
        if not self.pieces:
            raise StopAsyncIteration
        self.made += 1
        return self.pieces.pop(0)

    async def aclose(self) -> None:
        self.closed.set()


class Echo:
    """Echoes the request body, in pieces if the path requires it; `/wait` waits for `gate`."""

    def __init__(self) -> None:
        self.seen: list[Request] = []
        self.gate = asyncio.Event()
        self.waiting = 0
        self.cancelled = 0
        self.bodies: list[Pieces] = []

    async def __call__(self, request: Request) -> Response:
        self.seen.append(request)
        try:
            body = await request.read()
        except Exception as error:
            return Response(getattr(error, "status", 413), [], str(error).encode())
        if request.path == "/wait":
            self.waiting += 1
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            finally:
                self.waiting -= 1
        headers = [("x-method", request.method), ("x-query", request.query)]
        if request.path.startswith("/pieces"):
            size = int(request.path.rpartition("/")[2])
            self.bodies.append(Pieces([body[i : i + size] for i in range(0, len(body), size)]))
            return Response(200, headers, self.bodies[-1])
        return Response(200, headers, body)


@asynccontextmanager
async def server(**limits: float | bool) -> AsyncIterator[tuple[Server, Echo, tuple[str, int]]]:
    echo = Echo()
    made = Server(echo, Limits(http2=True, **limits))  # type: ignore[arg-type]
    address = await made.listen_tcp("127.0.0.1", 0)
    try:
        yield made, echo, address
    finally:
        await made.aclose()


# ── the same answers ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("window", [1, 1000, 65535, 2**20])
async def test_exchanges_of_any_size_at_once(window: int) -> None:
    chance = random.Random(SEED + window)
    largest = 300 if window == 1 else 100_000
    bodies = [chance.randbytes(int(chance.random() ** 3 * largest)) for _ in range(40)]
    async with server() as (_, echo, address), http2_client(address, window=window) as client:
        paths = [f"/pieces/{chance.randrange(1, 50_000)}" if chance.random() < 0.5 else "/whole" for _ in bodies]
        sending = enumerate(zip(paths, bodies, strict=True))
        replies = await asyncio.gather(*(client.request("POST", f"{path}?n={i}", body) for i, (path, body) in sending))
        for i, (reply, body) in enumerate(zip(replies, bodies, strict=True)):
            assert (reply.status, reply.reset, bytes(reply.body)) == (200, None, body)
            assert reply.headers[b"x-query"] == b"n=%d" % i
            assert not {b"connection", b"transfer-encoding", b"keep-alive"} & set(reply.headers)
        assert all(body.closed.is_set() for body in echo.bodies)


async def test_head_has_the_head_of_get_and_no_body() -> None:
    async with server() as (_, _, address), http2_client(address) as client:
        reply = await client.request("HEAD", "/whole")
        assert (reply.status, bytes(reply.body), reply.headers[b"content-length"]) == (200, b"", b"0")
        reply = await client.request("GET", "/whole", fields=[(b"x-a", b"1"), (b"te", b"trailers")])
        assert reply.status == 200


async def test_fields_arrive_as_they_were_sent() -> None:
    async with server() as (_, echo, address), http2_client(address) as client:
        fields = [(b"cookie", b"a=1"), (b"cookie", b"b=2"), (b"x-name", b"\xe9")]
        await client.request("GET", "/a%20b?q=%0d%0a", fields=fields)
        (request,) = echo.seen
        assert (request.path, request.query, request.headers["host"]) == ("/a b", "q=%0d%0a", "test")
        assert request.headers["cookie"] in ("a=1, b=2", "a=1; b=2")
        assert request.peer == "127.0.0.1"


async def test_a_body_over_the_limit_is_refused_and_the_connection_continues() -> None:
    async with server(max_body=10_000) as (_, _, address), http2_client(address) as client:
        stream_id, reply = client.open(head("POST", "/whole"), last=False)
        with contextlib.suppress(h2.exceptions.ProtocolError):  # the server need not read the rest
            await client.send(stream_id, bytes(200_000))
        await asyncio.wait_for(reply.ended.wait(), GRACE)
        assert reply.status == 413
        assert (await client.request("POST", "/whole", b"small")).status == 200


async def test_http1_and_fragmented_prefaces_on_the_same_port() -> None:
    async with server() as (made, _, address):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"P")
        await until(lambda: len(made.connections) == 1)
        writer.write(b"OST /whole HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi")
        assert (await reader.readuntil(b"hi")).startswith(b"HTTP/1.1 200")
        writer.close()
        reader, writer = await asyncio.open_connection(*address)
        client = Http2Client(reader, writer, window=65535, stride=1)
        await client.greeted.wait()
        assert (await client.request("POST", "/whole", b"hi")).body == b"hi"
        await client.aclose()
        await until(lambda: not made.connections)


@pytest.mark.parametrize(("offered", "taken"), [(["h2"], "h2"), (["h2", "http/1.1"], "http/1.1"), ([], None)])
async def test_tls_takes_http1_where_it_can(offered: list[str], taken: str | None, certificate: Path) -> None:
    context = server_side(certificate)
    context.set_alpn_protocols(["http/1.1", "h2"])
    trusting = client_side(certificate)
    if offered:
        trusting.set_alpn_protocols(offered)
    made = Server(Echo(), Limits(http2=True))
    address = await made.listen_tcp("127.0.0.1", 0, context)
    if taken == "h2":
        async with http2_client(address, tls=trusting) as client:
            assert (await client.request("POST", "/whole", b"hi")).body == b"hi"
    else:
        reader, writer = await asyncio.open_connection(*address, ssl=trusting, server_hostname="127.0.0.1")
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == taken
        writer.write(b"GET /whole HTTP/1.1\r\nhost: a\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()
    await made.aclose()


# ── no request inside a request ───────────────────────────────────────────────────────────────────────

BYTES = [b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b"\x7f", b":", b"\r\nx-injected: 1"]
BYTES += [b"\r\n\r\nGET /inner HTTP/1.1\r\n"]


async def test_no_field_becomes_another_field_or_request() -> None:
    """Every place of a head with every byte that ends something in HTTP/1.1."""
    chance = random.Random(SEED)
    places = (b":method", b":path", b":authority", b"name", b"value")
    cases = list(itertools.product(places, ("start", "middle", "end"), BYTES))
    chance.shuffle(cases)
    async with server() as (_, echo, address):
        for place, where, bad in cases:
            put = {"start": bad + b"ab", "middle": b"a" + bad + b"b", "end": b"ab" + bad}[where]
            fields = dict(head("GET", "/whole"))
            if place in fields:
                fields[place] = (b"/" + put) if place == b":path" else put
            else:
                fields[put if place == b"name" else b"x-field"] = b"v" if place == b"name" else put
            async with http2_client(address) as client:
                echo.seen.clear()
                _, reply = client.open(list(fields.items()))
                client.flush()
                async with asyncio.timeout(GRACE):
                    await reply.ended.wait()
                assert len(echo.seen) <= 1
                for request in echo.seen:
                    assert set(request.headers) <= {"host", "x-field", "connection", put.lower().decode("latin-1")}
                    assert request.path != "/inner"


@pytest.mark.parametrize(
    "fields",
    [
        [(b"transfer-encoding", b"chunked")],
        [(b"content-length", b"5"), (b"content-length", b"6")],
        [(b"content-length", b"+5")],
        [(b"connection", b"upgrade")],
        [(b"upgrade", b"websocket")],
        [(b"proxy-connection", b"keep-alive")],
    ],
)
async def test_framing_fields_are_refused(fields: list[tuple[bytes, bytes]]) -> None:
    async with server() as (_, echo, address), http2_client(address) as client:
        stream_id, reply = client.open(head("POST", "/whole", fields), last=False)
        client.h2.send_data(stream_id, b"hello", end_stream=True)
        client.flush()
        await asyncio.wait_for(reply.ended.wait(), GRACE)
        assert reply.status != 200
        assert all(request.path == "/whole" for request in echo.seen)


# ── a client that leaves, or reads nothing ────────────────────────────────────────────────────────────


async def test_a_reset_cancels_its_own_request() -> None:
    async with server() as (made, echo, address), http2_client(address) as client:
        stream_id, _ = client.open(head("GET", "/wait"))
        _, other = client.open(head("GET", "/wait"))
        await until(lambda: echo.waiting == 2)
        client.h2.reset_stream(stream_id)
        client.flush()
        await until(lambda: echo.waiting == 1)
        assert echo.cancelled == 1
        echo.gate.set()
        await asyncio.wait_for(other.ended.wait(), GRACE)
        assert other.status == 200
        await until(lambda: len(made.connections) == 1)


async def test_a_client_that_leaves_cancels_all_its_requests() -> None:
    async with server() as (made, echo, address):
        async with http2_client(address) as client:
            for _ in range(10):
                client.open(head("GET", "/wait"))
            await until(lambda: echo.waiting == 10)
        await until(lambda: echo.cancelled == 10 and not made.connections)


@pytest.mark.waits
async def test_a_reader_with_a_shut_window_holds_a_bounded_part_of_a_body() -> None:
    async with server(send_timeout=0.3) as (made, echo, address), http2_client(address, window=1000) as client:
        client.read_bodies = False
        stream_id, reply = client.open(head("POST", "/pieces/10000"), last=False)
        await client.send(stream_id, bytes(2_000_000))
        await until(lambda: bool(echo.bodies) and echo.bodies[0].made > 5)
        await asyncio.sleep(0.05)
        assert echo.bodies[0].made * 10_000 <= multiplexed.WINDOW
        await asyncio.wait_for(echo.bodies[0].closed.wait(), GRACE)  # the send timeout of HTTP/1.1 holds here too
        await asyncio.wait_for(reply.ended.wait(), GRACE)
        assert reply.reset is not None
        await until(lambda: len(made.connections) == 1)


async def test_a_client_that_takes_nothing_has_the_send_timeout() -> None:
    async with server(send_timeout=7.0) as (made, _, address), http2_client(address) as client:
        _, reply = client.open(head("GET", "/wait"))
        await until(lambda: len(made.connections) == 1)
        (connection,) = made.connections
        assert isinstance(connection, Multiplexed)
        before = made.loop.time()
        connection.pause_writing()
        assert before + 7.0 <= connection.deadline <= made.loop.time() + 7.0
        assert not reply.ended.is_set()


async def test_a_drain_answers_pending_requests_and_refuses_later_ones() -> None:
    async with server() as (made, echo, address), http2_client(address) as client:
        _, under_way = client.open(head("GET", "/wait"))
        await until(lambda: echo.waiting == 1)
        draining = asyncio.create_task(made.drain(GRACE))
        await until(lambda: client.goaway is not None)
        assert client.goaway is not None
        assert client.goaway.error_code == 0
        echo.gate.set()
        await asyncio.wait_for(under_way.ended.wait(), GRACE)
        assert under_way.status == 200
        assert await draining
        await asyncio.wait_for(client.closed.wait(), GRACE)


async def test_an_idle_connection_is_closed() -> None:
    async with server(keepalive_timeout=0.05) as (made, _, address), http2_client(address) as client:
        assert (await client.request("GET", "/whole")).status == 200
        await asyncio.wait_for(client.closed.wait(), GRACE)
        await until(lambda: not made.connections)


# ── floods ────────────────────────────────────────────────────────────────────────────────────────────


def rapid_reset(client: Http2Client) -> bytes:
    stream_id, _ = client.open(head("GET", "/wait"))
    client.h2.reset_stream(stream_id)
    return client.h2.data_to_send()


def made_you_reset(client: Http2Client) -> bytes:
    stream_id, _ = client.open(head("GET", "/wait"))
    return WindowUpdateFrame(stream_id, window_increment=2**31 - 1).serialize()


FLOODS: dict[str, Callable[[Http2Client], bytes]] = {
    "rapid reset": rapid_reset,
    "made you reset": made_you_reset,
    "pings": lambda client: PingFrame(0, b"12345678").serialize(),
    "settings": lambda client: SettingsFrame(0, {1: 4096}).serialize(),
    "priorities": lambda client: PriorityFrame(1, depends_on=0, stream_weight=1).serialize(),
    "windows": lambda client: WindowUpdateFrame(0, window_increment=1).serialize(),
    "empty data": lambda client: DataFrame(next(iter(client.replies)), b"").serialize(),
    "resets of a closed stream": lambda client: RstStreamFrame(1, error_code=8).serialize(),
}


@pytest.mark.parametrize("kind", FLOODS)
async def test_a_flood_ends_its_connection_and_others_are_served(kind: str) -> None:
    async with server() as (made, echo, address), http2_client(address) as client, http2_client(address) as other:
        await client.request("GET", "/whole")
        if kind == "empty data":
            client.replies.clear()
            client.open(head("POST", "/whole"), last=False)
        sent = 0
        while not client.closed.is_set() and sent < 20_000:
            try:
                for _ in range(50):
                    client.writer.write(FLOODS[kind](client))
                    sent += 1
                await client.writer.drain()
            except Exception:
                break
            assert (await other.request("GET", "/whole")).status == 200
        await asyncio.wait_for(client.closed.wait(), GRACE)
        assert sent <= 20_000
        await until(lambda: echo.waiting == 0 and len(made.connections) == 1)


async def test_more_streams_than_there_may_be() -> None:
    async with server() as (made, echo, address), http2_client(address) as client:
        await client.request("GET", "/whole")  # its settings are here
        client.h2.remote_settings[h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS] = 10**6
        client.h2.remote_settings.acknowledge()
        for _ in range(multiplexed.MAX_STREAMS + 1):
            client.open(head("GET", "/wait"))
        await asyncio.wait_for(client.closed.wait(), GRACE)
        assert echo.waiting <= multiplexed.MAX_STREAMS
        await until(lambda: not made.connections)


async def test_garbage_at_any_place_ends_the_connection_only() -> None:
    chance = random.Random(SEED)
    async with server() as (made, _, address):
        for _ in range(30):
            async with http2_client(address) as client:
                if chance.random() < 0.7:
                    await client.request("GET", "/whole")
                if chance.random() < 0.5:
                    client.open(head("POST", "/whole"), last=False)
                client.writer.write(chance.randbytes(chance.randrange(1, 3000)))
                if chance.random() < 0.5:
                    client.writer.write_eof()
                await asyncio.sleep(0.005)
        await until(lambda: not made.connections)
