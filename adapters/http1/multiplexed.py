"""HTTP/2 (RFC 9113) for handlers of HTTP/1.1, with the `h2` package, for clients that support only HTTP/2.

Each stream is a separate HTTP/1.1 connection (`stream_transport.py`); this module passes frames to streams and sends
their responses. `FrameReceiver` bounds the features of HTTP/2: concurrent streams, frames without content, resets.
"""

import asyncio
import contextlib
from typing import cast

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings
from hyperframe.frame import GoAwayFrame

from adapters.http1.connection import Connection
from adapters.http1.host import Host
from adapters.http1.stream_transport import Field, NoRequest, StreamTransport
from adapters.http1.sweeper import NEVER

# The receiving half of an HTTP/2 connection: frames, a bounded number in each turn, within the client's allowance.

MAX_STREAMS = 100
WINDOW = 256 * 1024
"""Bytes of one body that a client may send before the HTTP/1.1 connection reads them."""
STRIDE = 2 * 1024
"""Bytes of frames that are handled at once: about two hundred of the smallest frames."""
TURN_SECONDS = 0.005
"""Time that one connection may handle frames in one turn of the loop."""
CALM = 1000
"""Resets and frames without a request that a client may send; each response restores a part of this allowance."""
CALM_PER_REQUEST = 20
MAX_UNACCOUNTED = 32 * 1024
"""Limit on the bytes of frames for which `h2` has no event: frames of closed streams or of unknown types.

A partially received frame is smaller than this limit.
"""


class FrameReceiver(asyncio.Protocol):
    """Receives frames as events of `h2`. A subclass handles the events and ends the connection."""

    def __init__(self, server: Host, transport: asyncio.Transport) -> None:
        self.server = server
        self.transport = transport
        self._rest = b""
        self._scheduled = False
        self._can_write = True
        self._closed = False
        self._calm = CALM
        self._unaccounted = 0  # received bytes that belong neither to a request nor to a body
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding=None))
        settings = {
            h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
            h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: WINDOW,
            h2.settings.SettingCodes.MAX_HEADER_LIST_SIZE: server.limits.max_head,
            h2.settings.SettingCodes.ENABLE_PUSH: 0,
        }
        self._h2.local_settings = h2.settings.Settings(client=False, initial_values=settings)
        self._h2.decoder.max_header_list_size = server.limits.max_head
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(WINDOW * 16)

    def data_received(self, data: bytes) -> None:
        self._rest += data
        if not self._scheduled:
            self._handle_rest()

    def _handle_rest(self) -> None:
        """Handle the frames of one turn. The remainder waits for the next turn, and reading is paused meanwhile."""
        self._scheduled = False
        ends = self.server.loop.time() + TURN_SECONDS
        try:
            while self._rest and not self._closed:
                piece, self._rest = self._rest[:STRIDE], self._rest[STRIDE:]
                self._unaccounted += len(piece)
                for event in self._h2.receive_data(piece):
                    self._on_event(event)
                if self._unaccounted > MAX_UNACCOUNTED:
                    self._spend(self._unaccounted // 64)
                    self._unaccounted = 0
                if self.server.loop.time() > ends:
                    break
        except h2.exceptions.ProtocolError:
            self._end()
            return
        self._flush()
        waits = bool(self._rest) and not self._closed
        if waits:
            self.transport.pause_reading()
            self._scheduled = True
            self.server.loop.call_soon(self._handle_rest)
        elif self._can_write and not self._closed:
            self.transport.resume_reading()

    def _spend(self, calm: int) -> None:
        """Charge the client's allowance, and close the connection when the allowance is used up.

        This stops a client that sends frames without requests (CVE-2019-9512, CVE-2023-44487, CVE-2025-8671).
        """
        self._calm -= calm
        if self._calm < 0 and not self._closed:
            self._h2.close_connection(h2.errors.ErrorCodes.ENHANCE_YOUR_CALM)
            self._end()

    def _flush(self) -> None:
        if not self._closed and (data := self._h2.data_to_send()):
            self.transport.write(data)

    # ── implemented by the streams' half ──────────────────────────────────────────────────────────────────

    def _on_event(self, event: h2.events.Event) -> None:
        raise NotImplementedError

    def _end(self) -> None:
        """Close after the written bytes, and drop the requests in progress."""
        raise NotImplementedError


class Multiplexed(FrameReceiver):
    """An HTTP/2 connection. It replaces a `Connection` after HTTP/2's preface, or after TLS has negotiated `h2`."""

    def __init__(self, server: Host, transport: asyncio.Transport) -> None:
        super().__init__(server, transport)
        self.deadline = NEVER
        self._streams: dict[int, StreamTransport] = {}
        self._greeted = False
        self._leaving = False
        server.opened(self)
        self._idle()
        self._flush()

    # ── transport events ──────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def pause_writing(self) -> None:
        """Pause reading while the client reads nothing: otherwise the replies to pings would fill the memory."""
        self._can_write = False
        self.transport.pause_reading()
        self._expect_taking()

    def resume_writing(self) -> None:
        self._can_write = True
        if not self._scheduled:
            self.transport.resume_reading()
        for stream in list(self._streams.values()):
            self.send(stream)
        self._idle()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        self.deadline = NEVER
        for stream in list(self._streams.values()):
            stream.lose()
        self._streams.clear()
        self.server.closed(self, None)

    # ── frames ────────────────────────────────────────────────────────────────────────────────────────

    def _on_event(self, event: h2.events.Event) -> None:
        if not self._greeted:
            self._greeted = isinstance(event, h2.events.RemoteSettingsChanged)
        if not self._greeted:  # SETTINGS must come first (RFC 9113, 3.4); `h2` does not check this
            self._h2.close_connection(h2.errors.ErrorCodes.PROTOCOL_ERROR)
            raise h2.exceptions.ProtocolError
        match event:
            case h2.events.RequestReceived():
                self._on_request(event)
            case h2.events.DataReceived():
                self._on_data(event)
            case h2.events.StreamEnded():
                if (stream := self._streams.get(event.stream_id or 0)) is not None:
                    stream.body_ended()
            case h2.events.StreamReset():
                self._spend(5)
                if (stream := self._streams.pop(event.stream_id or 0, None)) is not None:
                    stream.lose()
                self._after_stream()
            case h2.events.WindowUpdated():
                self._spend(1)
                moved = [self._streams.get(event.stream_id)] if event.stream_id else list(self._streams.values())
                for stream in moved:
                    if stream is not None:
                        self.send(stream)
            case h2.events.ConnectionTerminated():
                self._leaving = True
                self._after_stream()
            case _:
                self._spend(1)

    def _on_request(self, event: h2.events.RequestReceived) -> None:
        stream_id = event.stream_id or 0
        if self._leaving:
            self._h2.reset_stream(stream_id, h2.errors.ErrorCodes.REFUSED_STREAM)
            return
        self.deadline = NEVER
        self._unaccounted = min(self._unaccounted, 0)
        stream = StreamTransport(self, stream_id, Connection(self.server))
        self._streams[stream_id] = stream
        try:
            stream.request(event.headers, last=event.stream_ended is not None)
        except NoRequest:
            self._spend(5)
            self._reset(stream, h2.errors.ErrorCodes.PROTOCOL_ERROR)

    def _on_data(self, event: h2.events.DataReceived) -> None:
        data, length = event.data or b"", event.flow_controlled_length or 0
        self._unaccounted -= length
        stream = self._streams.get(event.stream_id or 0)
        if not data and event.stream_ended is None:
            self._spend(1)
        if stream is None:
            self._h2.acknowledge_received_data(length, event.stream_id or 0)
            return
        if padding := length - len(data):
            self._h2.acknowledge_received_data(padding, stream.id)
        if data:
            stream.body(data)

    def read(self, stream_id: int, size: int) -> None:
        """Acknowledge `size` bytes of a body that the HTTP/1.1 connection has read."""
        if size and not self._closed:
            with contextlib.suppress(h2.exceptions.ProtocolError):  # the stream is already closed
                self._h2.acknowledge_received_data(size, stream_id)
            self._flush()

    # ── responses ─────────────────────────────────────────────────────────────────────────────────────

    def send_headers(self, stream: StreamTransport, fields: list[Field]) -> None:
        if self._streams.get(stream.id) is stream:
            self._calm = min(CALM, self._calm + CALM_PER_REQUEST)
            with contextlib.suppress(h2.exceptions.ProtocolError):
                self._h2.send_headers(stream.id, fields)
            self._flush()

    def send(self, stream: StreamTransport) -> None:
        """Send pending bytes as far as the flow-control windows and the socket permit."""
        if self._streams.get(stream.id) is not stream or self._closed:
            return
        try:
            while stream.pending and self._can_write:
                size = min(self._h2.local_flow_control_window(stream.id), self._h2.max_outbound_frame_size)
                if size <= 0:
                    break
                self._h2.send_data(stream.id, bytes(stream.pending[:size]))
                self._calm = min(CALM, self._calm + 2)  # a client with small windows sends many updates
                del stream.pending[:size]
                self._flush()
            if stream.ended and not stream.pending:
                self._h2.end_stream(stream.id)
                if not stream.received_all:  # the client need not send the rest; a part may already be in transit
                    self._h2.reset_stream(stream.id, h2.errors.ErrorCodes.NO_ERROR)
                    self._unaccounted = -WINDOW
                self._streams.pop(stream.id)
                self._flush()
                self.close_soon(stream)
        except h2.exceptions.ProtocolError:  # the client has reset the stream
            self._streams.pop(stream.id, None)
            self.close_soon(stream)
        stream.taken()
        self._after_stream()

    def close_soon(self, stream: StreamTransport) -> None:
        """Close a stream after the end of its HTTP/1.1 connection. An incomplete response ends in a reset."""
        if stream.ended and stream.pending and not stream.lost:
            return  # `send` calls this method again after the last byte
        if self._streams.get(stream.id) is stream:
            self._reset(stream, h2.errors.ErrorCodes.INTERNAL_ERROR)
        elif not stream.lost:
            self.server.loop.call_soon(stream.lose)

    def _reset(self, stream: StreamTransport, code: h2.errors.ErrorCodes) -> None:
        self._streams.pop(stream.id, None)
        if not stream.received_all:
            self._unaccounted = -WINDOW
        with contextlib.suppress(h2.exceptions.ProtocolError):
            self._h2.reset_stream(stream.id, code)
        self._flush()
        self.server.loop.call_soon(stream.lose)
        self._after_stream()

    # ── ends ──────────────────────────────────────────────────────────────────────────────────────────

    def _after_stream(self) -> None:
        if not self._streams and not self._closed:
            if self._leaving:
                self._end()
            else:
                self._idle()

    def _idle(self) -> None:
        if self._can_write and not self._streams:
            self.deadline = self.server.loop.time() + self.server.limits.keepalive_timeout
        elif self._can_write:
            self.deadline = NEVER

    def _expect_taking(self) -> None:
        self._unsent = self.transport.get_write_buffer_size()
        self.deadline = self.server.loop.time() + self.server.limits.send_timeout

    @property
    def rests(self) -> bool:
        """Whether no stream is open."""
        return not self._streams

    def expire(self) -> None:
        if self._can_write:
            self._leave()
        elif self.transport.get_write_buffer_size() < self._unsent:
            self._expect_taking()  # the client is slow, but reads its responses
        else:
            self.abort()

    def hurry(self, lull: float, patience: float) -> None:
        self._leave()

    def _leave(self) -> None:
        """Announce the close: requests in progress are answered; later requests are refused and may be retried."""
        if self._closed or self._leaving:
            return
        self._leaving = True
        # `h2` would treat its own GOAWAY as the end of the connection and send nothing after it.
        last = self._h2.highest_inbound_stream_id
        self.transport.write(GoAwayFrame(0, last_stream_id=last, error_code=0).serialize())
        self._after_stream()

    def _end(self) -> None:
        """Close after the written bytes, and drop the requests in progress."""
        self._flush()
        self._closed = True
        for stream in list(self._streams.values()):
            self.server.loop.call_soon(stream.lose)
        self._streams.clear()
        self.transport.close()
        self.deadline = self.server.loop.time() + self.server.limits.send_timeout
        self._can_write, self._unsent = False, self.transport.get_write_buffer_size()

    @property
    def spare(self) -> bool:
        """Whether the connection has no stream and no stream begins."""
        return not self._streams and self.deadline != NEVER

    def give_way(self) -> None:
        if self._can_write:
            self._leave()
        self.transport.abort()

    def end_requests(self) -> set[asyncio.Task[None]]:
        """Nothing: the connections of the streams are cut by themselves."""
        return set()

    def abort(self) -> asyncio.Task[None] | None:
        """Drop the connection now. Returns None: the connections of the streams own the tasks."""
        self._closed = True
        self.transport.abort()
        return None
