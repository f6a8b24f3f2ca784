"""Seeded noise: the server answers in whole frames or closes, reports no error, and continues to serve."""

import asyncio
import random

import pytest

from adapters.http2 import frames
from adapters.http2.accepted import Limits
from adapters.http2.fields import encode
from adapters.http2.frames import END_HEADERS, END_STREAM, PADDED, PREFACE, WITH_PRIORITY, ErrorCode, frame
from tests.adapters.http2.peer import connected, framed, mutated, plainly, request
from tests.adapters.http2.served import Methods, Served, serving

METHODS = ["Echo", "Total", "Count", "Talk", "Late", "Flood", "Nothing"]
CASES = 120


def head(method: str, stream_id: int, flags: int = END_HEADERS) -> bytes:
    block = encode([(name.encode(), value.encode()) for name, value in request(f"/test.Service/{method}")])
    return frame(frames.HEADERS, flags, stream_id, block)


def sentence(rng: random.Random) -> bytes:
    """A few frames, most of them such as a client sends."""
    stream_id = rng.choice([1, 1, 3, 5, 7])
    kinds = [
        lambda: head(rng.choice(METHODS), stream_id) + frame(frames.DATA, END_STREAM, stream_id, framed(b"3")),
        lambda: head(rng.choice(METHODS), stream_id),
        lambda: head("Talk", stream_id, 0) + frame(frames.CONTINUATION, END_HEADERS, stream_id, b""),
        lambda: frame(frames.DATA, rng.choice([0, END_STREAM, PADDED]), stream_id, framed(bytes(rng.randrange(200)))),
        lambda: frame(frames.HEADERS, rng.randrange(256) | WITH_PRIORITY, stream_id, bytes(rng.randrange(20))),
        lambda: frames.settings_frame({rng.randrange(8): rng.choice([0, 1, 100, 16_384, 2**31 - 1, 2**32 - 1])}),
        lambda: frames.window_update(rng.choice([0, stream_id]), rng.choice([0, 1, 1000, 2**31 - 1])),
        lambda: frames.rst_stream(stream_id, ErrorCode.CANCEL),
        lambda: frame(frames.PING, rng.randrange(2), 0, bytes(8)),
        lambda: frame(
            rng.randrange(256), rng.randrange(256), rng.choice([0, stream_id]), rng.randbytes(rng.randrange(30))
        ),
    ]
    return b"".join(rng.choice(kinds)() for _ in range(rng.randint(1, 8)))


async def attack(served: Served, data: bytes, rng: random.Random) -> None:
    """Send `data` in pieces, and wait for the end of the connection; what came must be whole frames."""
    async with plainly(served.port) as plain:
        while data:
            cut = rng.randint(1, len(data))
            plain.send(data[:cut])
            data = data[cut:]
            await asyncio.sleep(0)
        plain.send(frame(frames.PUSH_PROMISE, 0, 1))  # ends the open streams
        await plain.until(lambda: plain.closed)
        if not plain.raw.startswith(b"HTTP/1.1 426 "):
            assert all(kind <= frames.CONTINUATION for kind, _, _ in plain.frames)


@pytest.mark.parametrize("seed", range(4))
async def test_noise_is_answered_or_closed(seed: int) -> None:
    rng = random.Random(seed)
    limits = Limits(
        max_head=2048, max_message=500, max_held=5000, max_unsent=5000, max_streams=3,
        greeting_timeout=0.05, message_timeout=0.05, send_timeout=0.05, ping_interval=0.1, idle_timeout=0.1, lull=0.05,
    )  # fmt: skip
    async with serving(Methods(), limits) as served:
        greeting = PREFACE + frames.settings_frame({})
        noise = [
            (greeting if rng.random() < 0.9 else b"") + mutated(sentence(rng), rng, rng.randrange(3))
            for _ in range(CASES)
        ]
        await asyncio.gather(*[attack(served, data, random.Random(i)) for i, data in enumerate(noise)])
        async with connected(served.port) as peer:
            assert (await peer.request(request(), framed(b"after"))).messages == [b"after"]
        await served.quiet()
