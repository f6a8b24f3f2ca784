"""An upstream that a test scripts byte by byte."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class ReceivedRequest(NamedTuple):
    """A request as received."""

    line: str
    headers: dict[str, str]
    body: bytes


class Peer:
    """The upstream's side of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def request(self) -> ReceivedRequest:
        """Read one request. Raises `IncompleteReadError` when the client leaves instead."""
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:] if line)
        return ReceivedRequest(lines[0], headers, await self.reader.readexactly(int(headers["content-length"])))

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def left(self) -> None:
        """Wait until the client disconnects."""
        try:
            while await self.reader.read(65536):
                pass
        except ConnectionError:
            pass

    def close(self) -> None:
        self.writer.close()


Play = Callable[[Peer], Awaitable[None]]


class Upstream:
    """Listens, plays one script a connection, and counts."""

    def __init__(self, play: Play) -> None:
        self._play = play
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.accepted = 0
        self.left = 0
        self.port = 0
        self.errors: list[Exception] = []

    def met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._writers.append(writer)
        task = asyncio.create_task(self._run(Peer(reader, writer)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, peer: Peer) -> None:
        try:
            await self._play(peer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except Exception as error:
            self.errors.append(error)
        finally:
            self.left += 1
            peer.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def aclose(self) -> None:
        for writer in self._writers:
            if not writer.is_closing():
                writer.transport.abort()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        assert self.errors == []


@asynccontextmanager
async def scripted(
    play: Play, *, host: str = "127.0.0.1", path: str | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Upstream]:
    upstream = Upstream(play)
    if path is not None:
        listener = await asyncio.start_unix_server(upstream.met, path)
    else:
        listener = await asyncio.start_server(upstream.met, host, 0, ssl=tls)
        upstream.port = listener.sockets[0].getsockname()[1]
    try:
        yield upstream
    finally:
        listener.close()
        await upstream.aclose()


def answers(*answer: bytes) -> Play:
    """One answer a request, in turn; then the connection is closed."""

    async def play(peer: Peer) -> None:
        for data in answer:
            await peer.request()
            peer.send(data)

    return play


async def always_ok(peer: Peer) -> None:
    while True:
        await peer.request()
        peer.send(OK)
