"""Another implementation of HTTP/2 (`h2`) at the other end, which also checks that received frames are legal."""

import asyncio
import random
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import h2.config
import h2.connection
import h2.events
import h2.settings

from adapters.http2.fields import encode
from adapters.http2.frames import GOAWAY, PREFACE
from adapters.http2.inbox import PREFIX

PATIENCE = 300.0
Fields = list[tuple[str, str]]


def request(path: str = "/test.Service/Echo", **changes: str | None) -> Fields:
    """The head of a call; a change to None leaves a field out, `_` stands for `-`."""
    fields: dict[str, str | None] = {
        ":method": "POST", ":scheme": "http", ":path": path, ":authority": "x", "te": "trailers",
        "content-type": "application/grpc",
    }  # fmt: skip
    fields |= {name.replace("_", "-"): value for name, value in changes.items()}
    return [(name, value) for name, value in fields.items() if value is not None]


def block(path: str, *more: tuple[bytes, bytes]) -> bytes:
    """The header block of a call to `path`."""
    return encode([*[(name.encode(), value.encode()) for name, value in request(path)], *more])


def framed(message: bytes, flag: int = 0) -> bytes:
    return PREFIX.pack(flag, len(message)) + message


def mutated(data: bytes, rng: random.Random, changes: int) -> bytes:
    """The data with some bits, pieces or gaps that do not belong there."""
    out = bytearray(data)
    for _ in range(changes):
        at = rng.randrange(len(out))
        match rng.randrange(3):
            case 0:
                out[at] ^= 1 << rng.randrange(8)
            case 1:
                out[at:at] = rng.randbytes(rng.randint(1, 9))
            case _:
                del out[at : at + rng.randint(1, 9)]
    return bytes(out)


def as_text(fields: Iterable[Sequence[object]] | None) -> dict[str, str]:
    """`h2` has decoded them."""
    return {str(name): str(value) for name, value in fields or ()}


@dataclass
class Answer:
    """The frames of one stream."""

    head: dict[str, str] = field(default_factory=dict)
    data: bytes = b""
    trailers: dict[str, str] = field(default_factory=dict)
    ended: bool = False
    reset: int | None = None

    @property
    def over(self) -> bool:
        return self.ended or self.reset is not None

    @property
    def status(self) -> int:
        """gRPC's."""
        return int((self.trailers or self.head)["grpc-status"])

    @property
    def messages(self) -> list[bytes]:
        listed, data = [], self.data
        while data:
            size = PREFIX.unpack_from(data)[1]
            listed.append(data[5 : 5 + size])
            data = data[5 + size :]
        return listed


class Peer:
    """One connection. Received frames are in `answers` by stream, and in `goaway`, `pings` and `closed`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, client: bool = True) -> None:
        config = h2.config.H2Configuration(
            client_side=client,
            header_encoding="latin-1",
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
        self.h2 = h2.connection.H2Connection(config)
        self.writer = writer
        self._reader = reader
        self.answers: dict[int, Answer] = {}
        self.goaways: list[int] = []
        self.pings: list[bytes] = []
        self.events: list[h2.events.Event] = []
        self.raw = b""
        self._rest = b""
        self.closed = False
        self.takes_data = True  # whether it gives its windows back
        self.acks = True  # whether it answers at all

    @property
    def goaway(self) -> int | None:
        return self.goaways[-1] if self.goaways else None

    def start(self) -> None:
        self.h2.initiate_connection()
        self.flush()

    def flush(self) -> None:
        self.send(self.h2.data_to_send())

    def send(self, data: bytes) -> None:
        """Write bytes unchanged; discard them after a reset, when uvloop would raise."""
        if not self.writer.transport.is_closing():
            self.writer.write(data)

    def call(self, fields: Fields, data: bytes = b"", *, end: bool = True) -> int:
        """Open a stream, and send as much as the windows permit."""
        stream_id = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream_id, fields, end_stream=end and not data)
        while data:
            piece, data = data[: self.h2.max_outbound_frame_size], data[self.h2.max_outbound_frame_size :]
            self.h2.send_data(stream_id, piece, end_stream=end and not data)
        self.flush()
        return stream_id

    async def run(self) -> None:
        """Receive until the end."""
        try:
            while data := await self._reader.read(2**16):
                self.raw += data
                self._feed(data)
                if self.acks:
                    self.flush()
        except ConnectionError:
            pass
        finally:
            self.closed = True
            self.writer.close()

    def _feed(self, data: bytes) -> None:
        """Frame by frame: for `h2`, a connection is over with the first GOAWAY."""
        self._rest += data
        while len(self._rest) >= 9 and len(self._rest) >= (size := 9 + int.from_bytes(self._rest[:3], "big")):
            whole, self._rest = self._rest[:size], self._rest[size:]
            if not self.goaways:
                for event in self.h2.receive_data(whole):
                    self._take(event)

    def _take(self, event: h2.events.Event) -> None:
        self.events.append(event)
        stream_id = getattr(event, "stream_id", None)
        answer = self.answers.setdefault(stream_id, Answer()) if stream_id else Answer()
        match event:
            case h2.events.ResponseReceived() | h2.events.RequestReceived():
                answer.head = as_text(event.headers)
            case h2.events.DataReceived():
                answer.data += event.data or b""
                if self.takes_data:
                    self.h2.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id or 0)
            case h2.events.TrailersReceived():
                answer.trailers = as_text(event.headers)
            case h2.events.StreamEnded():
                answer.ended = True
            case h2.events.StreamReset():
                answer.reset = answer.reset if answer.ended else int(event.error_code or 0)
            case h2.events.ConnectionTerminated():
                self.goaways.append(int(event.error_code or 0))
            case h2.events.PingReceived():
                self.pings.append(event.ping_data or b"")

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                await asyncio.sleep(0.001)

    async def answer(self, stream_id: int) -> Answer:
        """Wait until a stream is over, or the connection is."""
        await self.until(lambda: self.closed or (stream_id in self.answers and self.answers[stream_id].over))
        return self.answers[stream_id]

    async def request(self, fields: Fields, data: bytes = b"") -> Answer:
        return await self.answer(self.call(fields, data))

    async def end(self) -> int | None:
        """Wait for the end of the connection; why the other side ended it."""
        await self.until(lambda: self.closed)
        return self.goaway


@asynccontextmanager
async def connected(port: int, tls: ssl.SSLContext | None = None, *, start: bool = True) -> AsyncIterator[Peer]:
    """A client at a server of ours."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    peer = Peer(reader, writer)
    if start:
        peer.start()
    running = asyncio.create_task(peer.run())
    try:
        yield peer
    finally:
        writer.transport.abort()
        await asyncio.wait([running])
        if not running.cancelled():
            running.result()


class Plain:
    """One connection, whose bytes are only cut into frames: for what `h2` would not hear of."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.raw = b""
        self.closed = False

    def send(self, data: bytes) -> None:
        if not self._writer.transport.is_closing():
            self._writer.write(data)

    async def run(self) -> None:
        try:
            while data := await self._reader.read(2**16):
                self.raw += data
        except ConnectionError:
            pass
        finally:
            self.closed = True
            self._writer.close()

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                await asyncio.sleep(0.001)

    @property
    def frames(self) -> list[tuple[int, int, bytes]]:
        """Kind, stream and payload of each that is whole."""
        listed, at = [], 0
        while at + 9 <= len(self.raw):
            size = int.from_bytes(self.raw[at : at + 3], "big")
            stream_id = int.from_bytes(self.raw[at + 5 : at + 9], "big")
            listed.append((self.raw[at + 3], stream_id, self.raw[at + 9 : at + 9 + size]))
            at += 9 + size
        return listed

    @property
    def goaways(self) -> list[bytes]:
        """The last stream of each."""
        return [payload[:4] for kind, _, payload in self.frames if kind == GOAWAY]


@asynccontextmanager
async def plainly(port: int) -> AsyncIterator[Plain]:
    """A client at a server of ours, without manners."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    plain = Plain(reader, writer)
    running = asyncio.create_task(plain.run())
    try:
        yield plain
    finally:
        writer.transport.abort()
        await asyncio.wait([running])


GREETING = PREFACE + b"\0\0\0\4\0\0\0\0\0"
"""The least with which a client may begin."""
