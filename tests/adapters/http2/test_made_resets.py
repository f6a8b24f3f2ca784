"""Streams that a client makes the server reset (CVE-2025-8671) count as its own resets do (CVE-2023-44487)."""

import asyncio
from collections.abc import Callable

import pytest

from adapters.http2 import frames
from adapters.http2.frames import CALM, END_HEADERS, END_STREAM, ErrorCode, frame
from tests.adapters.http2.peer import GREETING, block, connected, framed, plainly, request
from tests.adapters.http2.served import Methods, serving

HANG = block("/test.Service/Hang")
MOST_STREAMS = 2 * CALM
PER_WRITE = 100

FAULTS: dict[str, Callable[[int], bytes]] = {
    "a window update of zero": lambda number: frames.window_update(number, 0),
    "a window that overflows": lambda number: frames.window_update(number, frames.MAX_WINDOW),
    "data behind the end": lambda number: frame(frames.DATA, 0, number, framed(b"more")),
    "a second head": lambda number: frame(frames.HEADERS, END_HEADERS | END_STREAM, number, HANG),
    "the client's own reset": lambda number: frames.rst_stream(number, ErrorCode.CANCEL),
}
HALF_OPEN: dict[str, Callable[[int], bytes]] = {
    "a head without an end": lambda number: frame(frames.HEADERS, END_HEADERS, number, HANG)
}


@pytest.mark.parametrize(
    ("name", "flags"), [*[(name, END_STREAM) for name in FAULTS], *[(name, 0) for name in HALF_OPEN]]
)
async def test_streams_that_the_server_is_made_to_reset_end_the_connection(name: str, flags: int) -> None:
    fault = {**FAULTS, **HALF_OPEN}[name]
    methods = Methods()
    async with serving(methods) as served:
        async with plainly(served.port) as peer:
            peer.send(GREETING)
            number = 1
            while not peer.closed and number < 2 * MOST_STREAMS:
                batch = range(number, number + 2 * PER_WRITE, 2)
                peer.send(b"".join(frame(frames.HEADERS, END_HEADERS | flags, one, HANG) + fault(one) for one in batch))
                number += 2 * PER_WRITE
                await asyncio.sleep(0)
            await peer.until(lambda: peer.closed)
            goaways = [payload for kind, _, payload in peer.frames if kind == frames.GOAWAY]
            assert [payload[4:8] for payload in goaways] == [ErrorCode.ENHANCE_YOUR_CALM.to_bytes(4, "big")]
        await served.quiet()
        assert methods.begun == len(methods.ends)
        async with connected(served.port) as other:
            assert (await other.request(request(), framed(b"hello"))).messages == [b"hello"]


async def test_a_fault_now_and_then_ends_only_its_own_stream() -> None:
    async with serving(Methods()) as served, connected(served.port) as peer:
        for _ in range(20):
            broken = peer.call(request("/test.Service/Hang"))
            peer.send(frames.window_update(broken, 0))
            assert (await peer.answer(broken)).reset == ErrorCode.PROTOCOL_ERROR
            assert (await peer.request(request(), framed(b"hello"))).messages == [b"hello"]
        assert peer.goaway is None
