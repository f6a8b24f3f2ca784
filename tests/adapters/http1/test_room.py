"""A server whose places are all taken: idle connections give way, requests under way never do."""

import asyncio
import random

import pytest

from adapters.http1.message import Request, Response
from adapters.http1.server import Limits
from tests.adapters.http1.http2_client import http2_client
from tests.adapters.http1.raw import Echo, Raw, get, post, serving, until

MOST = 20


async def test_idle_connections_give_way_to_new_ones() -> None:
    async with serving(Echo(), Limits(max_connections=MOST)) as served:
        idle = [await served.connect() for _ in range(8 * MOST)]
        client = await served.connect()
        client.send(get())
        assert (await client.reply()).status == 200
        assert len(served.server.connections) <= MOST
        assert await idle[0].rest() == b""


async def test_connections_that_were_never_used_give_way_first() -> None:
    async with serving(Echo(), Limits(max_connections=3)) as served:
        used = await served.connect()
        used.send(get())
        await used.reply()
        unused = await served.connect()
        await until(lambda: len(served.server.connections) == 2)
        for connection in served.server.connections:
            connection.deadline -= 0.01  # the loop's clock ticks in milliseconds
        newcomers = [await served.connect() for _ in range(2)]
        assert await unused.rest() == b""
        for client in (used, *newcomers):
            client.send(get())
            assert (await client.reply()).status == 200


async def test_a_client_of_http2_gives_way_when_it_has_no_stream() -> None:
    async with serving(Echo(), Limits(max_connections=2, http2=True)) as served:
        address = ("127.0.0.1", served.port)
        async with http2_client(address) as first:
            assert (await first.request("GET", "/")).status == 200
            await until(lambda: len(served.server.connections) == 1)
            others = []
            for _ in range(2):
                others.append(await served.connect())
                others[-1].send(post("Content-Length: 3", body=b"a"))
                await until(lambda: sum(not c.spare for c in served.server.connections) == len(others))
            async with asyncio.timeout(300):
                await first.closed.wait()
            for other in others:
                other.send(b"bc")
                assert (await other.reply()).status == 200


@pytest.mark.parametrize("seed", range(5))
async def test_no_request_under_way_gives_way(seed: int) -> None:
    """Connections of all kinds come in any order: those with a request are answered, and no other is beyond the cap."""
    dice, gate = random.Random(seed), asyncio.Event()

    async def handler(request: Request) -> Response:
        await request.read()
        await gate.wait()
        return Response(200)

    kinds = (b"", b"GET / HT", get(), post("Content-Length: 3", body=b"a"))
    async with serving(handler, Limits(max_connections=MOST)) as served:
        busy: list[tuple[Raw, bytes]] = []
        for _ in range(6 * MOST):
            sent = dice.choice(kinds)
            if len(busy) >= MOST - 2:
                sent = dice.choice(kinds[:2])
            client = await served.connect()
            client.send(sent)
            if sent in kinds[2:]:
                busy.append((client, b"bc" if sent.startswith(b"POST") else b""))
                await until(lambda: sum(not c.spare for c in served.server.connections) == len(busy))
            assert len(served.server.connections) <= MOST + 1
        gate.set()
        for client, rest in busy:
            client.send(rest)
            assert (await client.reply()).status == 200
