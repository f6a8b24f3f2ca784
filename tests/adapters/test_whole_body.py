"""Bodies of aiohttp's responses that arrive in pieces."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from adapters.whole_body import whole_body

ROOMS = ("adapters", "config", "gateway", "policies", "runtimes")
PROJECT = Path(__file__).parents[2]


async def received(pieces: Sequence[bytes], most: int) -> bytes | None:
    read = asyncio.Semaphore(0)

    async def respond(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
            await read.acquire()  # the next piece arrives later
        return response

    app = web.Application()
    app.router.add_get("/", respond)
    async with TestServer(app) as server, aiohttp.ClientSession() as http, http.get(server.make_url("/")) as response:
        task, arrived = asyncio.create_task(whole_body(response, most)), 0
        for piece in pieces:
            arrived += len(piece)
            while response.content.total_bytes < arrived:
                await asyncio.sleep(0)
            read.release()
        return await task


@pytest.mark.parametrize("pieces", [(), (b"a",), (b"a", b"bc"), (b"x" * 70_000, b"y", b"z" * 70_000)])
async def test_a_body_in_pieces_is_read_to_its_end(pieces: Sequence[bytes]) -> None:
    whole = b"".join(pieces)
    assert await received(pieces, len(whole)) == whole
    if whole:
        assert await received(pieces, len(whole) - 1) is None


def test_no_module_reads_a_part_of_a_body() -> None:
    paths = [path for room in ROOMS for path in (PROJECT / room).rglob("*.py")]
    assert [str(path) for path in paths if "content.read(" in path.read_text(encoding="utf-8")] == []
