"""A large body is written without a copy: a copy of tens of megabytes holds the loop for tens of milliseconds."""

import asyncio
import tracemalloc
from typing import Self

import pytest

from adapters.http1.client import Client
from adapters.http1.message import ONE_WRITE, Request, Response, write_message
from adapters.types import Deadline
from tests.adapters.http1.raw import get, serving

SIZE = 32 * 1024 * 1024
COPIES = SIZE // 2
"""Bytes that a request may allocate: socket buffers and pieces, but no copy of its body."""
SOON = Deadline(1e9, 30.0, 30.0)


class _Pieces:
    def __init__(self, body: bytes) -> None:
        self._pieces = [b"first", body, b"last"]

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if not self._pieces:
            raise StopAsyncIteration
        return self._pieces.pop(0)

    async def aclose(self) -> None:
        self._pieces.clear()


def _only_uvloop() -> None:
    if isinstance(asyncio.get_running_loop(), asyncio.SelectorEventLoop):
        pytest.skip("the transports of asyncio copy the bytes that the socket does not accept")


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_response_is_written_without_a_copy(streamed: bool) -> None:
    _only_uvloop()
    body = bytes(SIZE)

    async def handler(request: Request) -> Response:
        tracemalloc.start()
        return Response(200, body=_Pieces(body) if streamed else body)

    async with serving(handler) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(get())
        received = 0
        while received < SIZE:
            received += len(await reader.read(65536))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        writer.close()
    assert peak < COPIES


async def test_a_request_is_written_without_a_copy() -> None:
    _only_uvloop()
    received, ended = asyncio.Event(), asyncio.Event()

    async def upstream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = 0
        while size < SIZE:
            size += len(await reader.read(65536))
        received.set()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        await writer.drain()
        await reader.read()  # until the client closes the connection
        writer.close()
        ended.set()

    server = await asyncio.start_server(upstream, "127.0.0.1", 0)
    client = Client(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    body = bytes(SIZE)
    tracemalloc.start()
    response = await client.request(b"POST", b"/", b"", body, SOON)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert received.is_set()
    assert await response.read() == b"ok"
    await client.aclose()
    await ended.wait()
    server.close()
    assert peak < COPIES


@pytest.mark.parametrize("size", [0, 1, ONE_WRITE, ONE_WRITE + 1])
@pytest.mark.parametrize("tail", [b"", b"\r\n"])
async def test_the_written_bytes_do_not_depend_on_the_size(size: int, tail: bytes) -> None:
    written = bytearray()

    class Transport(asyncio.WriteTransport):
        def write(self, data: bytes | bytearray | memoryview) -> None:
            assert data
            written.extend(data)

    write_message(Transport(), b"head", b"x" * size, tail)
    assert written == b"head" + b"x" * size + tail
