"""A stream of chunks through real sockets: the client receives the bytes of the upstream, however they arrive."""

import asyncio
import json
from random import Random
from typing import Any

import pytest

from adapters.http1.client import Client
from adapters.http1.connection import Connection
from adapters.http1.server import Limits, Server
from adapters.upstreams.openai.client import OpenAIAdapter
from adapters.wire import sse
from gateway.fronts.errors import openai_refusal
from gateway.process.client_fronts import client_fronts
from tests.support.gateways import Rig, config

EVENT = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
REQUEST = {"model": "chat", "messages": [{"role": "user", "content": "x"}], "stream": True}


def events_of(rng: Random, count: int) -> list[bytes]:
    """Chunks, some of which have to be examined for usage."""
    events = []
    for _ in range(count):
        delta = {"content": rng.choice(("x", "xxxxx", "x" * 3000, "\u00e9"))}
        chunk = {**EVENT, "choices": [{"index": 0, "delta": delta, "finish_reason": None}], "usage": None}
        events.append(sse.encode(json.dumps(chunk, separators=rng.choice(((", ", ": "), *[(",", ":")] * 9))).encode()))
    return events


def joined(chunks: bytes) -> bytes:
    """The body of chunks without extensions and trailers."""
    body = b""
    while not chunks.startswith(b"0\r\n"):
        size, _, chunks = chunks.partition(b"\r\n")
        body, chunks = body + chunks[: int(size, 16)], chunks[int(size, 16) + 2 :]
    assert chunks == b"0\r\n\r\n"
    return body


@pytest.mark.parametrize("seed", range(6))
async def test_every_byte_arrives_in_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Random(seed)
    write_chunk, taken = Connection._write_chunk, list[bool]()

    def counted(connection: Connection, piece: bytes) -> bool:
        taken.append(write_chunk(connection, piece))
        return taken[-1]

    monkeypatch.setattr(Connection, "_write_chunk", counted)
    events = [*events_of(rng, 400), b"data: [DONE]\n\n"]
    writes = [HEAD, *[b"%x\r\n%b\r\n" % (len(event), event) for event in events], b"0\r\n\r\n"]
    if seed % 2:
        data, writes = b"".join(writes), []
        while data:
            size = rng.choice((1, 100, 5000, 100_000))
            writes, data = [*writes, data[:size]], data[size:]

    ended = asyncio.Event()

    async def upstream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for data in writes:
            writer.write(data)
            await (asyncio.sleep(0) if rng.random() < 0.9 else asyncio.sleep(0.001))
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        ended.set()

    server = await asyncio.start_server(upstream, "127.0.0.1", 0)
    address, upstream_port = server.sockets[0].getsockname()
    adapter: Any = OpenAIAdapter(Client(f"http://{address}:{upstream_port}/v1"))
    rig = Rig(config(), {"main": [adapter]})
    front = Server(client_fronts(rig.core), Limits(), openai_refusal)
    _, port = await front.listen_tcp("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=4096)
    body = json.dumps(REQUEST).encode()
    fields = f"host: h\r\nauthorization: Bearer {rig.key.plaintext}\r\ncontent-type: application/json\r\n"
    head = f"POST /v1/chat/completions HTTP/1.1\r\n{fields}connection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    received = bytearray()
    while piece := await reader.read(rng.choice((100, 10_000))):
        received += piece
        if seed % 3 == 0 and rng.random() < 0.05:
            await asyncio.sleep(0.002)  # a slow client: the gateway's writes wait
    _, _, chunks = bytes(received).partition(b"\r\n\r\n")
    assert seed % 2 or taken.count(True) > 100, "few pieces were forwarded as they were read"
    assert joined(chunks) == b"".join(events)
    writer.close()
    await rig.until_idle()
    rig.core.telemetry.flush()
    [record] = rig.log.records
    assert record.usage is not None
    assert record.usage.completion_tokens == 400
    assert record.usage.bytes == len(b"".join(events))
    await adapter.aclose()
    await front.aclose()
    await ended.wait()
    server.close()
