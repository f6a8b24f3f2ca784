"""A server whose answers a test scripts byte by byte, and which detects a retry that is not allowed."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

Play = Callable[["Peer"], Awaitable[None]]
RESET = struct.pack("ii", 1, 0)


class Peer:
    """The server's side of one connection, with the request that is to be answered."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.sent = 0
        self.gone = False

    async def request(self) -> str:
        """Its path. Raises `IncompleteReadError` when the client leaves instead."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = head.partition("content-length: ")[2].partition("\r\n")[0]
        if length:
            await self._reader.readexactly(int(length))
        elif "transfer-encoding: chunked" in head:
            while int(await self._reader.readuntil(b"\r\n"), 16):
                await self._reader.readuntil(b"\r\n")
            await self._reader.readuntil(b"\r\n")
        return head.split(" ")[1].partition("?")[0]

    async def send(self, data: bytes) -> None:
        """Raises `ConnectionError` once the client has disconnected."""
        if self._writer.transport.is_closing():
            raise ConnectionResetError
        self._writer.write(data)
        self.sent += len(data)
        await self._writer.drain()

    async def endless(self, data: bytes, pause: float = 0.001) -> None:
        """Again and again, until the client leaves. Virtual time passes only in a pause."""
        while True:
            await self.send(data)
            await asyncio.sleep(pause)

    async def left(self) -> None:
        """Wait until the client disconnects."""
        with suppress(ConnectionError):
            while await self._reader.read(65536):
                pass

    def reset(self) -> None:
        """End the connection as a machine does that has lost it."""
        plain: socket.socket | None = self._writer.get_extra_info("socket")
        if plain is not None:  # a connection in memory is reset anyway
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self._writer.transport.abort()

    def close(self) -> None:
        self._writer.close()


@dataclass
class Hostile:
    """`good` answers a path that is not under attack, and is None for attacked paths, which `play` answers."""

    good: Callable[[str], bytes | None]
    play: Play | None = None
    """None: everything is answered as it should be, by `well`."""
    well: bytes = b""
    reusable: bool = False
    """Whether a connection may be reused after `play`: its framing was valid."""
    url: str = ""
    attacked: int = 0
    sent: int = 0
    wrong: list[str] = field(default_factory=list)

    async def met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer, tainted = Peer(reader, writer), False
        try:
            while True:
                path = await peer.request()
                if tainted:
                    self.wrong.append(f"a connection was used again, for {path}")
                if (answer := self.good(path)) is not None:
                    await peer.send(answer)
                elif self.play is None:
                    await peer.send(self.well)
                else:
                    self.attacked += 1
                    tainted = not self.reusable
                    await self.play(peer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.sent = max(self.sent, peer.sent)
            writer.close()


class Listens(Protocol):
    """A server whose connections `met` serves."""

    url: str

    async def met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None: ...


L = TypeVar("L", bound=Listens)


@asynccontextmanager
async def listening(hostile: L) -> AsyncIterator[L]:
    """`hostile` at its `url`."""
    tasks: set[asyncio.Task[None]] = set()

    def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(hostile.met(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listener = await asyncio.start_server(met, "127.0.0.1", 0, limit=2**20)
    hostile.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield hostile
    finally:
        listener.close()
        for task in list(tasks):
            task.cancel()
        if tasks:
            for error in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(error, Exception):
                    raise error


def http(status: int, content_type: str, body: bytes, *fields: str) -> bytes:
    """An answer as it should be framed."""
    head = [f"HTTP/1.1 {status} X", f"content-type: {content_type}", f"content-length: {len(body)}", *fields, "", ""]
    return "\r\n".join(head).encode() + body
