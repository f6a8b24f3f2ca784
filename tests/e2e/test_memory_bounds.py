"""The memory of a real gateway is bounded for all that many clients send or leave unread, and is released.

`HEADRACE_SLOW_READERS=1000` raises the number of clients that do not read.
"""

import asyncio
import contextlib
import json
import os
import resource
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from adapters.http1.message import Request, Response
from adapters.http1.server import Limits, Server
from tests.support.processes import GatewayProcess, gateway

MiB = 2**20
LARGEST = 31 * MiB
BUDGET = 512 * MiB
CLIENTS = 100
SLOW_READERS = int(os.environ.get("HEADRACE_SLOW_READERS", "200"))
OF_A_SLOW_READER = 640 * 1024
"""Bytes: what was read from the upstream at once, and what waits for the client."""
SLACK = 64 * MiB
pytestmark = pytest.mark.timeout(1800)


_CHOICE = {"index": 0, "delta": {"content": "x" * 2000}, "finish_reason": None}
_EVENT = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [_CHOICE]}
EVENTS = (b"data: " + json.dumps(_EVENT).encode() + b"\n\n") * 30


class Endless:
    """A stream of events that never ends."""

    def __init__(self, backend: "Backend") -> None:
        self._backend = backend

    def __aiter__(self) -> "Endless":
        return self

    async def __anext__(self) -> bytes:
        await asyncio.sleep(0)
        self._backend.sent += 1
        return EVENTS

    async def aclose(self) -> None:
        pass


class Backend:
    """Reads every body, and answers with a small whole answer or an endless stream."""

    def __init__(self) -> None:
        self.bytes = 0
        self.sent = 0
        """Pieces of streams that were handed to the server, which takes the next one when its client has read."""

    async def __call__(self, http: Request) -> Response:
        body = await http.read()
        self.bytes += len(body)
        if b'"stream"' in body[:200]:
            return Response(200, [("content-type", "text/event-stream")], Endless(self))
        await asyncio.sleep(0.05)
        choice = {"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}
        answer = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        return Response(200, [("content-type", "application/json")], json.dumps(answer).encode())

    async def until_quiet(self, g: GatewayProcess) -> None:
        """Wait until the gateway reads no more of any stream, during fifty rounds of its loop and of its upstream's."""
        seen, rounds = self.sent, 0
        async with asyncio.timeout(300):
            while rounds < 50:
                await g.state()
                await asyncio.sleep(0.01)
                rounds = rounds + 1 if self.sent == seen else 0
                seen = self.sent


@asynccontextmanager
async def backend(handler: Backend | None = None) -> AsyncIterator[str]:
    server = Server(handler or Backend(), Limits(max_body=64 * MiB, max_held=64 * 1024 * MiB))
    host, port = await server.listen_tcp("127.0.0.1", 0)
    try:
        yield f"http://{host}:{port}"
    finally:
        await server.aclose()


def configuration(url: str) -> dict[str, Any]:
    http = {"max_held": f"{BUDGET // MiB}MiB", "max_held_by_tenant": f"{BUDGET // MiB}MiB"}
    return {
        "http": http,
        "pools": [{"name": "up", "endpoints": [url], "max_connections": 2 * SLOW_READERS, "probe": None}],
        "models": [{"name": "chat", "routes": [{"to": "up"}]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }


def head(key: str, length: int) -> bytes:
    return (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n"
        f"content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    ).encode()


def chat(size: int, **fields: Any) -> bytes:
    body = json.dumps({**fields, "model": "chat", "messages": [{"role": "user", "content": "x" * size}]})
    return body.encode()


class Watch:
    """The largest resident size of a process while it is watched."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self.before = self.now()
        self.most = self.before

    def now(self) -> int:
        return int(self._process.memory_info().rss)

    @property
    def grown(self) -> int:
        return self.most - self.before

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator["Watch"]:
        async def look() -> None:
            while True:
                self.most = max(self.most, self.now())
                await asyncio.sleep(0.02)

        looking = asyncio.create_task(look())
        try:
            yield self
        finally:
            looking.cancel()

    async def returns(self, most: int, seconds: float = 300.0) -> int:
        """Wait until the process has grown by no more than `most` bytes; what it has grown by."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.now() - self.before > most:
                    await asyncio.sleep(0.1)
        return self.now() - self.before


async def send(g: GatewayProcess, data: tuple[bytes, ...]) -> int:
    """One request on a connection of its own; its status, 0 when the connection broke."""
    host, port = g.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(b"".join(data))  # the answer may come before the body has been sent
        line = await reader.readline()
        return int(line.split()[1]) if line else 0
    except ConnectionError:
        return 0
    finally:
        writer.transport.abort()


async def test_many_of_the_largest_bodies_stay_within_the_budget(tmp_path: Path) -> None:
    body = chat(LARGEST)
    async with backend() as url, gateway(tmp_path, configuration(url), forked=False) as g:
        key = await g.key()
        watch = Watch(g.process.pid)
        async with watch():
            ends = Counter(await asyncio.gather(*[send(g, (head(key, len(body)), body)) for _ in range(CLIENTS)]))
        assert ends[200] >= BUDGET // (3 * len(body))
        assert set(ends) <= {200, 503}
        assert watch.grown < BUDGET + SLACK
        assert await watch.returns(SLACK) <= SLACK
        await g.until_idle()


async def test_slow_readers_are_bounded_and_their_memory_returns(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8 * SLOW_READERS)), hard))
    body = chat(10, stream=True)
    streams = Backend()
    async with backend(streams) as url, gateway(tmp_path, configuration(url), forked=False) as g:
        key = await g.key()
        host, port = g.url.removeprefix("http://").split(":")
        watch = Watch(g.process.pid)
        writers = []
        async with watch():
            for _ in range(SLOW_READERS):
                reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
                writer.transport.pause_reading()  # type: ignore[attr-defined]
                writer.write(head(key, len(body)) + body)
                writers.append((reader, writer))
            await g.until(f"s['in_flight'] == {SLOW_READERS}")
            await streams.until_quiet(g)
        assert watch.grown < SLOW_READERS * OF_A_SLOW_READER + SLACK
        for _, writer in writers:
            writer.transport.abort()
        await g.until_idle()
        assert await watch.returns(SLACK) <= SLACK
