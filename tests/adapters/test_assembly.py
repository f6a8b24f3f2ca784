"""Bodies that arrive in any pieces are whole, and no turn of the loop copies a large body at once."""

import asyncio
import random
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.assembly import LARGE, STEP, Assembly, Part, join
from adapters.errors import TooLarge
from adapters.http1.client import Client
from adapters.http1.host import Limits
from adapters.http1.message import Request, Response
from adapters.http2.inbox import PREFIX, Compressed, Inbox
from adapters.types import Deadline
from tests.adapters.http1.raw import serving

BODY = random.Random(7).randbytes(LARGE + 2 * STEP)
PIECE_SIZES = (1, 4095, 4096, 65_536, STEP - 1, STEP, STEP + 1, LARGE, LARGE + 1)
BODY_SIZES = (LARGE - 1, LARGE, LARGE + 1, len(BODY))
LARGEST = 64 * 1024 * 1024
SOON = Deadline(1e9, 30.0, 30.0)

cuts = st.lists(st.one_of(st.sampled_from(PIECE_SIZES), st.integers(0, 2 * STEP)), max_size=12)
forms = st.lists(st.sampled_from([bytes, bytearray, memoryview]), min_size=1, max_size=3)


def pieces_of(body: bytes, sizes: list[int]) -> Iterator[bytes]:
    at = 0
    for size in sizes:
        yield body[at : at + size]
        at += size
    yield body[at:]


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(BODY_SIZES), cuts, forms)
def test_joined_parts_are_equal_to_the_body(size: int, sizes: list[int], forms: list[Callable[[bytes], Part]]) -> None:
    body = BODY[:size]
    parts = [forms[i % len(forms)](piece) for i, piece in enumerate(pieces_of(body, sizes))]
    assert asyncio.run(join(parts)) == body
    assert Assembly(parts).finish() == body


async def test_parts_of_other_element_types_are_joined_by_their_bytes() -> None:
    numbers: Any = memoryview(BODY).cast("H")
    assert await join([b"head", numbers]) == b"head" + BODY


async def test_a_body_larger_than_the_first_mapping_is_whole() -> None:
    parts = [BODY] * 8
    assert await join(parts) == b"".join(parts)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(BODY_SIZES), cuts, st.booleans())
def test_a_message_is_equal_to_its_pieces(size: int, sizes: list[int], compressed: bool) -> None:
    body, inbox = BODY[:size], Inbox(len(BODY))
    wire = PREFIX.pack(int(compressed), size) + body + PREFIX.pack(0, 3) + b"abc"
    for piece in pieces_of(wire, sizes):
        inbox.feed(piece, 0, len(piece))
    assert list(inbox.messages) == [Compressed(body) if compressed else body, b"abc"]


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("piece", [3000, 65_536, STEP + 1])
async def test_a_server_and_a_client_receive_whole_bodies(chunked: bool, piece: int) -> None:
    class Pieces:
        def __init__(self) -> None:
            self._pieces = iter(pieces_of(BODY, [piece] * (len(BODY) // piece)))

        def __aiter__(self) -> "Pieces":
            return self

        async def __anext__(self) -> bytes:
            for each in self._pieces:
                if each:
                    return each
            raise StopAsyncIteration

        async def aclose(self) -> None:
            self._pieces = iter(())

    async def handler(request: Request) -> Response:
        assert await request.read() == BODY
        assert await request.read() == BODY
        return Response(200, body=Pieces() if chunked else BODY)

    async with serving(handler) as served:
        client = Client(f"http://127.0.0.1:{served.port}")
        response = await client.request(b"POST", b"/", b"", BODY, SOON)
        assert await response.read() == BODY
        await client.aclose()

        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        for each in pieces_of(BODY, [piece] * (len(BODY) // piece)):
            if each:
                writer.write(b"%x\r\n%b\r\n" % (len(each), each))
        writer.write(b"0\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_a_large_body_beyond_the_limit_is_rejected() -> None:
    refused = []

    async def handler(request: Request) -> Response:
        with pytest.raises(TooLarge) as raised:
            await request.read()
        refused.append(raised.value)
        return Response(413)

    async with serving(handler, limits=Limits(max_body=LARGE + STEP)) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        writer.write(b"%x\r\n%b\r\n" % (len(BODY), BODY))
        assert (await reader.readline()).startswith(b"HTTP/1.1 413")
        assert refused
        writer.close()


async def most_bytes(monkeypatch: pytest.MonkeyPatch, work: Callable[[], Coroutine[Any, Any, object]]) -> int:
    """The most bytes that one turn of the loop copies. Bytes are counted, since a copy's time depends on the kernel."""
    added, copied = Assembly.add, 0

    def add(self: Assembly, part: Part) -> None:
        nonlocal copied
        copied += memoryview(part).nbytes
        added(self, part)

    turns, total = [0], 0
    with monkeypatch.context() as patched:
        patched.setattr(Assembly, "add", add)
        task = asyncio.create_task(work())
        while not task.done():
            await asyncio.sleep(0)
            turns.append(copied)
            total, copied = total + copied, 0
        await task
    assert total >= LARGEST, "the work copies by steps"
    return max(turns)


async def test_no_turn_joins_the_largest_parts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parts: list[Part] = [b"head", memoryview(bytes(LARGEST)), b"tail"]
    assert await most_bytes(monkeypatch, lambda: join(parts)) <= LARGE + STEP


async def test_no_turn_assembles_the_largest_message_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    piece = bytes(STEP // 4)

    async def receive() -> None:
        inbox = Inbox(LARGEST)
        inbox.feed(PREFIX.pack(0, LARGEST), 0, 5)
        while not inbox.messages:
            inbox.feed(piece, 0, len(piece))
            await asyncio.sleep(0)

    assert await most_bytes(monkeypatch, receive) <= LARGE + STEP


async def test_no_turn_receives_the_largest_body_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handler(request: Request) -> Response:
        assert len(await request.read()) == LARGEST
        return Response(200, body=b"ok")

    def send(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % LARGEST)
            for _ in range(LARGEST // STEP):
                client.sendall(BODY[:STEP])
            assert client.recv(100).startswith(b"HTTP/1.1 200")

    async with serving(handler, limits=Limits(max_body=LARGEST)) as served:
        assert await most_bytes(monkeypatch, lambda: asyncio.to_thread(send, served.port)) <= LARGE + STEP
