"""The receiving half of an HTTP/2 connection: frames, a bounded number in each turn, within the client's allowance."""

import asyncio

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

from adapters.http1.host import Host

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
