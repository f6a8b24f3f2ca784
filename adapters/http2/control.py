"""Frames that belong to no call: settings, pings, window updates, resets.

Each frame that requests nothing (a ping, a setting, a reset, an empty frame …) reduces an allowance, `_calm`, which
time and accepted responses refill. A peer that exceeds it is disconnected with ENHANCE_YOUR_CALM.
"""

from __future__ import annotations

import asyncio

from adapters.http2 import frames
from adapters.http2.frames import CALM, CALM_EARNED, CALM_PER_SECOND, ErrorCode, Framing, Violation
from adapters.http2.sending import MAX_SENT_FRAME, Outlet
from adapters.http2.stream import Http2Stream

MAX_BACKLOG = 1024 * 1024
"""Bytes of replies to pings, settings and similar frames that a peer may leave unread."""
DRAIN_PING = b"draining"


class ControlFrames(Framing):
    """Handles the frames that belong to no call, and bounds their number."""

    __slots__ = ("_backlog", "_calm", "_calm_since", "outlet", "streams")
    outlet: Outlet

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.streams: dict[int, Http2Stream] = {}
        self._backlog = 0  # bytes other than DATA that were written while the peer did not read
        self._calm = CALM
        self._calm_since = loop.time()

    def _on_reset(self, flags: int, stream_id: int, payload: bytes) -> None:
        if len(payload) != frames.WORD.size:
            raise Violation(ErrorCode.FRAME_SIZE_ERROR, "RST_STREAM has four bytes")
        self._spend()
        stream = self.streams.get(stream_id)
        if stream is not None:
            self._was_reset(stream, frames.WORD.unpack(payload)[0])
        else:
            self._check_opened(stream_id)

    def _was_reset(self, stream: Http2Stream, code: int) -> None:
        raise NotImplementedError

    def _on_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        whole = len(payload) % frames.SETTING.size == 0
        check_connection_frame(stream_id, fits=whole and not (flags & frames.ACK and payload))
        self._spend()
        if flags & frames.ACK:
            return
        # Acknowledge first: until the peer receives the acknowledgement, it counts DATA against the old windows.
        self._answer(frames.frame(frames.SETTINGS, frames.ACK, 0))
        for name, value in frames.SETTING.iter_unpack(payload):
            self._apply(name, value)

    def _apply(self, name: int, value: int) -> None:
        """Apply a setting of the peer. The size of its HPACK table is irrelevant: the encoder never uses the table."""
        if name == frames.INITIAL_WINDOW_SIZE:
            if value > frames.MAX_WINDOW:
                raise Violation(ErrorCode.FLOW_CONTROL_ERROR, "a window is larger than a window may be")
            change, self.outlet.initial_window = value - self.outlet.initial_window, value
            for stream in list(self.streams.values()):
                stream.widen(change)
        elif name == frames.MAX_FRAME_SIZE:
            if not frames.DEFAULT_FRAME <= value < 2**24:
                raise Violation(ErrorCode.PROTOCOL_ERROR, "a frame size that no frame may have")
            self.outlet.max_frame = min(value, MAX_SENT_FRAME)
        elif name == frames.ENABLE_PUSH and value > 1:
            raise Violation(ErrorCode.PROTOCOL_ERROR, "ENABLE_PUSH is 0 or 1")

    def _on_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        check_connection_frame(stream_id, fits=len(payload) == 8)
        self._spend()
        if not flags & frames.ACK:
            self._answer(frames.frame(frames.PING, frames.ACK, 0, payload))
        elif payload == DRAIN_PING:
            self._on_drain_ping()

    def _on_drain_ping(self) -> None:
        """Handle the reply to the ping of a drain: the peer has received the GOAWAY."""

    def _on_window_update(self, flags: int, stream_id: int, payload: bytes) -> None:
        if len(payload) != frames.WORD.size:
            raise Violation(ErrorCode.FRAME_SIZE_ERROR, "WINDOW_UPDATE has four bytes")
        self._spend()
        increment = frames.WORD.unpack(payload)[0] & frames.MAX_WINDOW
        if stream_id == 0:
            if increment == 0:
                raise Violation(ErrorCode.PROTOCOL_ERROR, "a window update of zero")
            self.outlet.widen(increment)
            return
        stream = self.streams.get(stream_id)
        if stream is None:
            self._check_opened(stream_id)
        elif increment == 0:
            stream.break_off(ErrorCode.PROTOCOL_ERROR)
        else:
            stream.widen(increment)

    def _on_goaway(self, flags: int, stream_id: int, payload: bytes) -> None:
        raise NotImplementedError

    def _on_priority(self, flags: int, stream_id: int, payload: bytes) -> None:
        self._spend()

    def _on_unknown(self, flags: int) -> None:
        self._spend()

    def _on_push_promise(self, flags: int, stream_id: int, payload: bytes) -> None:
        raise Violation(ErrorCode.PROTOCOL_ERROR, "PUSH_PROMISE is not enabled")

    # ── bounds ────────────────────────────────────────────────────────────────────────────────────────

    def _check_opened(self, stream_id: int) -> None:
        """Ignore a late frame of a closed stream. Raises `Violation` for a stream that was never opened."""
        raise NotImplementedError

    def _spend(self) -> None:
        """Charge a frame that requests nothing. Raises `Violation` if the allowance is used up."""
        self._calm -= 1
        if self._calm < 0:
            now = self.loop.time()
            self._calm = min(CALM, int((now - self._calm_since) * CALM_PER_SECOND))
            self._calm_since = now
            if self._calm < 1:
                raise Violation(ErrorCode.ENHANCE_YOUR_CALM, "too many frames without effect")

    def forgive(self, count: int) -> None:
        """Refill the allowance: the peer had to send such frames to receive a response."""
        if self._calm < CALM_EARNED:
            self._calm += count

    def _answer(self, data: bytes) -> None:
        if self.outlet.paused:
            self._burden(len(data))
        self.outlet.write(data)

    def _burden(self, size: int) -> None:
        """Count `size` bytes other than DATA for a peer that does not read. Raises `Violation` above the limit."""
        self._backlog += size
        if self._backlog > MAX_BACKLOG:
            raise Violation(ErrorCode.ENHANCE_YOUR_CALM, "responses are not read")


def check_connection_frame(stream_id: int, *, fits: bool) -> None:
    """Check that SETTINGS, PING or GOAWAY is on stream 0 and has a valid size (RFC 9113, 6.5, 6.7, 6.8)."""
    if stream_id:
        raise Violation(ErrorCode.PROTOCOL_ERROR, "a frame of the connection is on a stream")
    if not fits:
        raise Violation(ErrorCode.FRAME_SIZE_ERROR, "a frame of the connection has the wrong size")
