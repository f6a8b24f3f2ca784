"""Seeded noise: the server answers or closes every connection, reports no error, and continues to serve."""

import asyncio
import random

import pytest

from adapters.http1.server import Limits
from tests.adapters.http1.raw import Echo, Served, get, post, serving

SEEDS = [
    get("/a?b=c", "X-A: b", "Authorization: Bearer d"),
    get("/", "Connection: Upgrade", "Upgrade: websocket"),
    get("/", "Connection: close"),
    post("Content-Length: 11", body=b"hello world"),
    post("Transfer-Encoding: chunked", body=b"5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nX-T: z\r\n\r\n"),
    post("Expect: 100-continue", "Content-Length: 5", body=b"hello"),
    b"GET /old HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
]
DELIMITERS = [b"\r", b"\n", b"\r\n", b"\0", b" ", b"\t", b":", b",", b";", b"0", b"f", b"\xff", b"HTTP/1.1", b"chunked"]
CASES = 150


def mutated(data: bytes, rng: random.Random) -> bytes:
    """A few small changes of the kinds that parsers disagree on."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(5):
            case 0 if at < len(out):
                out[at] ^= 1 << rng.randrange(8)
            case 1:
                out[at:at] = rng.choice(DELIMITERS)
            case 2:
                del out[at : at + rng.randint(1, 8)]
            case 3:
                out[at:at] = out[at : at + rng.randint(1, 40)]
            case _ if rng.random() < 0.2:
                del out[at:]
    return bytes(out)


async def attack(served: Served, data: bytes, rng: random.Random) -> None:
    """Send `data` in pieces, stop sending, and wait for the end of the connection."""
    client = await served.connect()
    while data:
        cut = rng.randint(1, len(data))
        client.send(data[:cut])
        data = data[cut:]
        await asyncio.sleep(0)
    out = await client.rest()
    assert out == b"" or out.startswith(b"HTTP/1.1 "), out
    client.close()


@pytest.mark.parametrize("seed", range(4))
async def test_noise_is_answered_or_closed(seed: int) -> None:
    rng = random.Random(seed)
    limits = Limits(
        max_head=2048, max_headers=20, max_body=500, max_pipelined=4,
        head_timeout=0.05, body_timeout=0.05, keepalive_timeout=0.05,
    )  # fmt: skip
    async with serving(Echo(), limits) as served:
        cases = [b"".join(mutated(s, rng) for s in rng.sample(SEEDS, rng.randint(1, 3))) for _ in range(CASES)]
        await asyncio.gather(*[attack(served, data, random.Random(i)) for i, data in enumerate(cases)])
        client = await served.connect()
        client.send(get("/after", "Connection: close"))
        [reply] = await client.replies()
        assert reply.decoded["path"] == "/after"
