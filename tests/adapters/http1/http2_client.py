"""An HTTP/2 client that sends the frames of a test, valid or not."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

Fields = list[tuple[bytes, bytes]]


@dataclass
class Reply:
    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    reset: int | None = None


class Http2Client:
    """One connection, whose first bytes go out `stride` at a time. `read_bodies` False leaves the windows shut."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, window: int, stride: int = 65536
    ) -> None:
        self.reader, self.writer = reader, writer
        self._stride = stride
        config = h2.config.H2Configuration(
            header_encoding=None, validate_outbound_headers=False, normalize_outbound_headers=False
        )
        self.h2 = h2.connection.H2Connection(config)
        self.h2.local_settings = h2.settings.Settings(
            client=True, initial_values={h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window}
        )
        self.h2.initiate_connection()
        self.replies: dict[int, Reply] = {}
        self.goaway: h2.events.ConnectionTerminated | None = None
        self.closed = asyncio.Event()
        self.greeted = asyncio.Event()
        self.read_bodies = True
        self._moved = asyncio.Event()
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            greeting = self.h2.data_to_send()
            for start in range(0, len(greeting), self._stride):
                self.writer.write(greeting[start : start + self._stride])
                await asyncio.sleep(0.0005 if self._stride < len(greeting) else 0)
            self.greeted.set()
            self.flush()
            while data := await self.reader.read(65536):
                for event in self.h2.receive_data(data):
                    self._on_event(event)
                self.flush()
                self._moved.set()
        except (ConnectionError, h2.exceptions.ProtocolError):
            pass
        finally:
            self.closed.set()
            self._moved.set()
            for reply in self.replies.values():
                reply.ended.set()

    def _on_event(self, event: h2.events.Event) -> None:
        reply = self.replies.get(getattr(event, "stream_id", None) or 0, Reply())
        match event:
            case h2.events.ResponseReceived():
                reply.headers = dict(event.headers or ())
                reply.status = int(reply.headers[b":status"])
            case h2.events.DataReceived():
                reply.body += event.data or b""
                if self.read_bodies:
                    self.h2.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id or 0)
            case h2.events.StreamEnded():
                reply.ended.set()
            case h2.events.StreamReset():
                reply.reset = reply.reset if reply.ended.is_set() else event.error_code
                reply.ended.set()
            case h2.events.ConnectionTerminated():
                self.goaway = event
                # The package treats GOAWAY as the end of the connection; open streams continue (RFC 9113, 6.8).
                self.h2.state_machine.state = h2.connection.ConnectionState.CLIENT_OPEN

    def flush(self) -> None:
        if self.greeted.is_set():
            self.writer.write(self.h2.data_to_send())

    def open(self, fields: Fields, *, last: bool = True) -> tuple[int, Reply]:
        """A stream that begins with these fields."""
        stream_id = self.h2.get_next_available_stream_id()
        reply = self.replies[stream_id] = Reply()
        self.h2.send_headers(stream_id, fields, end_stream=last)
        self.flush()
        return stream_id, reply

    async def send(self, stream_id: int, body: bytes, *, last: bool = True) -> None:
        """A body, as far and as fast as the windows let it."""
        while body:
            size = min(self.h2.local_flow_control_window(stream_id), self.h2.max_outbound_frame_size, len(body))
            if size <= 0:
                self._moved.clear()
                await asyncio.wait_for(self._moved.wait(), 300)
                if self.closed.is_set():
                    raise ConnectionError
                continue
            self.h2.send_data(stream_id, body[:size])
            self.flush()
            body = body[size:]
        if last:
            self.h2.end_stream(stream_id)
            self.flush()

    async def request(
        self, method: str, path: str, body: bytes = b"", fields: Iterable[tuple[bytes, bytes]] = ()
    ) -> Reply:
        """A whole exchange."""
        stream_id, reply = self.open(head(method, path, fields), last=not body)
        if body:
            await self.send(stream_id, body)
        async with asyncio.timeout(300):
            await reply.ended.wait()
        return reply

    async def aclose(self) -> None:
        self.writer.close()
        self._task.cancel()
        await asyncio.wait([self._task])


def head(method: str, path: str, fields: Iterable[tuple[bytes, bytes]] = ()) -> Fields:
    return [
        (b":method", method.encode()),
        (b":scheme", b"http"),
        (b":authority", b"test"),
        (b":path", path.encode()),
        *fields,
    ]


@asynccontextmanager
async def http2_client(
    address: tuple[str, int], *, window: int = 65535, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Http2Client]:
    reader, writer = await asyncio.open_connection(*address, ssl=tls, server_hostname="127.0.0.1" if tls else None)
    client = Http2Client(reader, writer, window=window)
    await client.greeted.wait()
    try:
        yield client
    finally:
        await client.aclose()
