"""A server of HTTP/2 whose frames a test writes: nothing that it sends has to be legal."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from adapters.http2.fields import Decoder, encode
from adapters.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    PREFACE,
    SETTINGS,
    frame,
)
from adapters.http2.inbox import PREFIX
from tests.hostile.server import Peer

Play = Callable[["H2Peer"], Awaitable[None]]
HEAD = [(b":status", b"200"), (b"content-type", b"application/grpc")]


def framed(message: bytes, flag: int = 0) -> bytes:
    """A gRPC message."""
    return PREFIX.pack(flag, len(message)) + message


class H2Peer(Peer):
    """The server's side of one connection; `stream` is the stream to answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(reader, writer)
        self._decoder = Decoder()
        self._paths: dict[int, str] = {}
        self.stream = 0

    async def greet(self) -> None:
        await self._reader.readexactly(len(PREFACE))
        await self.send(frame(SETTINGS, 0, 0))

    async def request(self) -> str:
        """The path of the next half-closed call. Raises `IncompleteReadError` if the client disconnects first."""
        while True:
            kind, flags, stream, payload = await self._frame()
            if kind == SETTINGS and not flags & ACK:
                await self.send(frame(SETTINGS, ACK, 0))
            elif kind == PING and not flags & ACK:
                await self.send(frame(PING, ACK, 0, payload))
            elif kind == HEADERS:
                while not flags & END_HEADERS:
                    kind, more, _, rest = await self._frame()
                    assert kind == CONTINUATION
                    payload, flags = payload + rest, flags | more
                fields = dict(self._decoder.decode(payload, 1 << 16))
                self._paths[stream] = fields[b":path"].decode()
            if kind in (HEADERS, DATA) and flags & END_STREAM:
                self.stream = stream
                return self._paths.pop(stream)

    async def _frame(self) -> tuple[int, int, int, bytes]:
        head = await self._reader.readexactly(9)
        size = int.from_bytes(head[:3], "big")
        return head[3], head[4], int.from_bytes(head[5:9], "big"), await self._reader.readexactly(size)

    async def headers(self, fields: list[tuple[bytes, bytes]], flags: int = 0) -> None:
        await self.send(frame(HEADERS, flags | END_HEADERS, self.stream, encode(fields)))

    async def head(self) -> None:
        await self.headers(HEAD)

    async def data(self, data: bytes, flags: int = 0) -> None:
        await self.send(frame(DATA, flags, self.stream, data))

    async def status(self, code: bytes, message: bytes = b"") -> None:
        """The end of an answer that had a head."""
        await self.headers([(b"grpc-status", code), (b"grpc-message", message)], END_STREAM)

    async def answer(self, *messages: bytes) -> None:
        """All as it should be."""
        await self.head()
        for message in messages:
            await self.data(framed(message))
        await self.status(b"0")


@dataclass
class HostileH2:
    """A server like `server.Hostile`; `good` and `well` are messages."""

    good: Mapping[str, bytes]
    well: tuple[bytes, ...] = ()
    play: Play | None = None
    reusable: bool = False
    url: str = ""
    attacked: int = 0
    connections: int = 0
    sent: int = 0
    wrong: list[str] = field(default_factory=list)

    async def met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer, tainted = H2Peer(reader, writer), False
        self.connections += 1
        try:
            await peer.greet()
            while True:
                path = await peer.request()
                if tainted:
                    self.wrong.append(f"a connection was used again, for {path}")
                if path in self.good:
                    await peer.answer(self.good[path])
                elif self.play is None:
                    await peer.answer(*self.well)
                else:
                    self.attacked += 1
                    tainted = not self.reusable
                    await self.play(peer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.connections -= 1
            self.sent = max(self.sent, peer.sent)
            writer.close()
