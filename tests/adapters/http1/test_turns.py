"""No connection holds the loop: what one connection sends, or one upstream answers, costs each turn a bounded part."""

import asyncio
import random

import pytest

from adapters.http1.client import Client
from adapters.http1.connection import Connection
from adapters.http1.feeding import STRIDE
from adapters.http1.incoming import Incoming
from adapters.http1.message import Request, Response
from adapters.http1.receiving import UNREAD_BODY_BYTES
from adapters.http1.server import Limits
from adapters.types import Deadline
from tests.adapters.http1.raw import Echo, get, post, serving, until
from tests.adapters.http1.scripted import Peer, scripted
from tests.support.turns import Turns, flood, most_seconds

pytestmark = pytest.mark.processes  # they measure the CPU time of turns

PIPELINED = 100_000
PATIENCE_TURNS = 30
"""Turns of the loop in which a neighbour's request is answered, however many requests another connection sends."""


async def test_pipelined_requests_of_one_connection_delay_no_other() -> None:
    answered = 0

    async def refuse(request: Request) -> Response:
        nonlocal answered
        if request.path == "/flood":
            answered += 1
            turns.note()
        return Response(401, body=b"no key")

    async with serving(refuse) as served:
        neighbour = await served.connect()
        waited = []
        with Turns() as turns, flood(served.port, get("/flood") * PIPELINED):
            await until(lambda: answered > 0)
            for _ in range(50):
                before = turns.number
                neighbour.send(get("/neighbour"))
                await neighbour.reply()
                waited.append(turns.number - before)
        assert 50 < answered < PIPELINED
        assert turns.busiest == 1
        assert sorted(waited)[len(waited) // 2] < PATIENCE_TURNS
        assert turns.longest < most_seconds()


async def test_requests_that_wait_for_their_turn_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = 0
    on_headers_complete = Connection.on_headers_complete

    def count(self: Connection) -> None:
        nonlocal parsed
        parsed += 1
        on_headers_complete(self)

    monkeypatch.setattr(Connection, "on_headers_complete", count)
    release = asyncio.Event()

    async def wait(request: Request) -> Response:
        await release.wait()
        return Response(200)

    limits = Limits(max_pipelined=4)
    async with serving(wait, limits) as served:
        with flood(served.port, get() * PIPELINED):
            await until(lambda: parsed >= limits.max_pipelined)
            await asyncio.sleep(0.05)
            assert parsed <= limits.max_pipelined + STRIDE // len(get())
            release.set()
            await until(lambda: parsed > 1000)


def requests(rng: random.Random) -> tuple[bytes, list[bytes]]:
    """Requests in a row that are small, chunked finely, or large; and the body of each."""
    sent, bodies = [], []
    for _ in range(rng.randrange(1, 300)):
        kind = rng.randrange(4)
        if kind == 0:
            sent.append(get())
            bodies.append(b"")
            continue
        size = rng.choice([1, 10, 1000, 20_000])
        body = rng.randbytes(size).hex().encode()
        if kind == 1:
            sent.append(post(f"Content-Length: {len(body)}", body=body))
        else:
            step = rng.choice([1, 2, 7]) if len(body) < 5000 else rng.choice([60, 3000])
            chunks = [body[at : at + step] for at in range(0, len(body), step)]
            framed = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
            sent.append(post("Transfer-Encoding: chunked", body=framed))
        bodies.append(body)
    return b"".join(sent), bodies


@pytest.mark.parametrize("seed", range(6))
async def test_any_mix_of_requests_is_answered_in_order_and_in_short_turns(seed: int) -> None:
    data, bodies = requests(random.Random(seed))
    async with serving(Echo()) as served:
        client = await served.connect()
        with Turns() as turns:
            client.send(data)
            received = [(await client.reply()).decoded["body"].encode() for _ in bodies]
        assert received == bodies
        assert turns.longest < most_seconds()


async def test_a_body_in_tiny_chunks_is_read_in_short_turns_and_stored_in_few_pieces() -> None:
    size, pieces = 200_000, 0

    async def count(request: Request) -> Response:
        nonlocal pieces
        assert isinstance(request, Incoming)
        await until(lambda: request.size > UNREAD_BODY_BYTES)
        pieces = len(request.body)
        return Response(200, body=b"%d" % len(await request.read()))

    async with serving(count) as served:
        client = await served.connect()
        with Turns() as turns:
            client.send(post("Transfer-Encoding: chunked", body=b"2\r\nab\r\n" * size + b"0\r\n\r\n"))
            assert (await client.reply()).body == b"%d" % (2 * size)
        assert pieces == 2
        assert turns.longest < most_seconds()


async def test_an_answer_in_tiny_chunks_is_read_in_short_turns() -> None:
    size = 300_000

    async def play(peer: Peer) -> None:
        await peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * size + b"0\r\n\r\n")
        await peer.left()

    async with scripted(play) as upstream:
        client = Client(upstream.url)
        with Turns() as turns:
            response = await client.request(b"GET", b"/", b"", b"", Deadline(client.now() + 30, 30, 30))
            assert len(await response.read()) == size
        assert turns.longest < most_seconds()
        await client.aclose()
