"""One stream of a connection: sends and receives messages within the windows of both directions."""

from __future__ import annotations

import asyncio
from collections import deque

from adapters.http1.sweeper import NEVER
from adapters.http2 import frames
from adapters.http2.calm import CALM_PER_FRAME, FORGIVING_BYTES
from adapters.http2.carrier import Carrier
from adapters.http2.codes import Code
from adapters.http2.frames import END_STREAM, HEADER, ErrorCode
from adapters.http2.inbox import PREFIX
from adapters.http2.receiving import Receiving
from adapters.http2.status import GrpcError


class Http2Stream(Receiving):
    """A stream of either side. `closed` means that neither direction carries further frames.

    `ending` ends the sending direction after all pending messages: non-empty bytes are written unchanged (trailers),
    empty bytes set the END_STREAM flag of the last DATA frame.
    """

    __slots__ = ("_moved", "_out", "_send_due", "_writers", "ending", "outlet", "sent_all", "window")

    def __init__(self, connection: Carrier, stream_id: int) -> None:
        super().__init__(connection, stream_id)
        self.outlet = connection.outlet
        self.window = self.outlet.initial_window
        self.sent_all = False
        self.ending: bytes | None = None
        self._out: deque[bytes | memoryview] = deque()
        self._moved = False  # whether any byte was sent since the last check
        self._send_due = NEVER
        self._writers: list[asyncio.Future[None]] = []

    # ── sending ───────────────────────────────────────────────────────────────────────────────────────

    def put(self, message: bytes) -> None:
        """Send a message now, or later when the window has room."""
        self._out.append(PREFIX.pack(0, len(message)))
        if message:
            self._out.append(message)
        self.outlet.unsent += len(message) + 5
        self.outlet.add(self)
        if self._out:
            self._watch_sending()

    async def room(self) -> None:
        """Wait until all messages have been written. Raises the error of a failed stream."""
        while self._out and not self.closed:
            writer = self.connection.loop.create_future()
            self._writers.append(writer)
            await writer
        if self.closed and self.error is not None:
            raise self.error

    @property
    def unsent(self) -> bool:
        """Whether a message waits until the peer reads."""
        return bool(self._out)

    def send_frame(self) -> bool:
        """Send one DATA frame of the pending messages; see `Sender`."""
        outlet = self.outlet
        size = left = min(self.window, outlet.window, outlet.max_frame)
        if left <= 0:
            return False
        pieces: list[bytes | memoryview] = []
        out = self._out
        while out and left:
            piece = out.popleft()
            if len(piece) > left:
                view = memoryview(piece)
                out.appendleft(view[left:])
                piece = view[:left]
            pieces.append(piece)
            left -= len(piece)
        size -= left
        self.window -= size
        outlet.window -= size
        outlet.unsent -= size
        self._moved = True
        self.connection.forgive(CALM_PER_FRAME + size // FORGIVING_BYTES)
        last = not out and self.ending == b""
        outlet.write(HEADER.pack(size >> 8, size & 0xFF, frames.DATA, END_STREAM if last else 0, self.id))
        for piece in pieces:
            outlet.write(piece)
        if out:
            return self.window > 0
        self._all_is_out()
        return False

    def _all_is_out(self) -> None:
        self._send_due = NEVER
        if self.ending is not None:
            if self.ending:
                self.outlet.write(self.ending)
            self.sent()
        for writer in self._writers:
            if not writer.done():
                writer.set_result(None)
        self._writers.clear()

    def end(self, ending: bytes) -> None:
        """End the sending direction: `ending` follows the pending messages."""
        self.ending = ending
        if not self._out:
            if not ending:
                self.outlet.write(frames.frame(frames.DATA, END_STREAM, self.id))
            self._all_is_out()

    def sent(self) -> None:
        """Handle the last frame of the sending direction."""
        self.sent_all = True

    def widen(self, increment: int) -> None:
        """Change the peer's window for this stream; new settings may also reduce it."""
        self.window += increment
        if self.window > frames.MAX_WINDOW:
            self.break_off(ErrorCode.FLOW_CONTROL_ERROR)
        elif self._out and self.window > 0:
            self.outlet.add(self)

    # ── ends ──────────────────────────────────────────────────────────────────────────────────────────

    def _watch_sending(self) -> None:
        if self._send_due == NEVER:
            self._moved = False
            self._send_due = self.connection.loop.time() + self.connection.send_timeout
            self.connection.look_at(self._send_due)

    def check(self, now: float) -> float:
        """End the stream if a time limit has passed. Returns the time of the next check."""
        if self._send_due <= now:
            if not self._moved:
                self.stalled()
                return NEVER
            self._moved = False
            self._send_due = now + self.connection.send_timeout
        return self._send_due

    def stalled(self) -> None:
        """Handle a peer that has read nothing for `send_timeout`."""
        self.break_off(ErrorCode.CANCEL)

    def break_off(self, code: ErrorCode) -> None:
        """Reset the stream in both directions."""
        if not self.closed:
            self.outlet.write(frames.rst_stream(self.id, code))
            self.close(GrpcError(Code.CANCELLED, "The stream was reset."))
            self.discard()

    def close(self, error: Exception | None) -> None:
        """Close both directions; waiting tasks receive `error`."""
        if self.closed:
            return
        self.closed = True
        if self.error is None:
            self.error = error
        self.connection.forget(self)
        self.outlet.remove(self)
        self.outlet.unsent -= sum(map(len, self._out))
        self._out.clear()
        for waiter in (self._reader, *self._writers):
            if waiter is not None and not waiter.done():
                waiter.set_result(None)
