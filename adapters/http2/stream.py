"""One stream of a connection: messages in and out, within the windows of both directions."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from adapters.http1.sweeper import NEVER
from adapters.http2 import frames
from adapters.http2.control import FORGIVING_BYTES
from adapters.http2.frames import END_STREAM, HEADER, ErrorCode
from adapters.http2.inbox import PREFIX, Compressed, Inbox, inflate
from adapters.http2.status import Code, GrpcError

if TYPE_CHECKING:
    from adapters.http2.connection import Connection

STREAM_WINDOW = 16 * 1024 * 1024
"""Bytes that a peer may send of one stream before somebody reads."""
INFLATE_INLINE = 64 * 1024
"""Compressed bytes above which inflating leaves the loop's thread."""


class Stream:
    """What both sides have of a stream. It is `closed` when neither direction will carry any more of it.

    `ending` ends our direction behind what is still to be sent: bytes are written as they are (trailers), and
    empty ones mean the flag on the last DATA frame.
    """

    __slots__ = (
        "_held", "_moved", "_out", "_owed", "_reader", "_send_due", "_writers", "closed", "connection", "deaf",
        "encoding", "ending", "error", "id", "inbox", "outlet", "received_all", "sent_all", "window",
    )  # fmt: skip

    def __init__(self, connection: Connection[Any], stream_id: int) -> None:
        self.connection = connection
        self.outlet = connection.outlet
        self.id = stream_id
        self.inbox = Inbox(connection.max_message)
        self.window = self.outlet.initial_window
        self.encoding = b""
        self.received_all = False
        self.sent_all = False
        self.closed = False
        self.deaf = False  # nobody reads any more
        self.error: Exception | None = None  # what whoever waits is told
        self.ending: bytes | None = None
        self._held = 0  # bytes in the inbox
        self._owed = 0  # bytes received and not given back to the peer's window
        self._out: deque[bytes | memoryview] = deque()
        self._moved = False  # whether any byte went out since somebody looked
        self._send_due = NEVER
        self._reader: asyncio.Future[None] | None = None
        self._writers: list[asyncio.Future[None]] = []

    # ── receiving ─────────────────────────────────────────────────────────────────────────────────────

    def receive(self, data: bytes, start: int, stop: int, padding: int, *, last: bool) -> None:
        """`data[start:stop]` came, after `padding` bytes of nothing."""
        size = stop - start
        self._owed += size + padding
        if self._owed > STREAM_WINDOW:
            self.break_off(ErrorCode.FLOW_CONTROL_ERROR)
            return
        if self.deaf:
            self.received_all = last
            return
        self._held += size
        self.connection.hold(size)
        try:
            self.inbox.feed(data, start, stop)
            if self.connection.held > self.connection.max_held:
                raise GrpcError(Code.RESOURCE_EXHAUSTED, "This connection has too many unread messages under way.")
        except GrpcError as error:
            self.refuse(error)
            return
        if last:
            self.received_all = True
        elif self.inbox.halfway and self.inbox.arrived < size:
            self.begun()
        self.wake()

    def begun(self) -> None:
        """A message has begun, and is not whole."""

    async def read(self) -> bytes | None:
        """The next message; None when the peer will send no more. Raises `GrpcError`."""
        messages = self.inbox.messages
        while not messages:
            if self.error is not None:
                raise self.error
            if self.received_all:
                if self.inbox.halfway:
                    raise GrpcError(Code.INTERNAL, "The stream ends inside a message.")
                return None
            self._credit()
            await self._arrival()
        message = messages.popleft()
        self._release(len(message) + 5)
        if not messages:
            self._credit()
        if isinstance(message, Compressed):
            return await self._inflated(message)
        return message

    async def _arrival(self) -> None:
        self._reader = self.connection.loop.create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    async def _inflated(self, message: bytes) -> bytes:
        if len(message) <= INFLATE_INLINE:
            return inflate(message, self.encoding, self.inbox.limit)
        return await asyncio.to_thread(inflate, message, self.encoding, self.inbox.limit)

    def wake(self) -> None:
        """Something came that a reader may wait for."""
        if self._reader is not None:
            if not self._reader.done():
                self._reader.set_result(None)
            if not self.inbox.messages:
                self._credit()

    def _credit(self) -> None:
        """Let the peer send more: whoever reads has all that came but the message that is still arriving."""
        if self._owed >= STREAM_WINDOW // 2 and not self.received_all and not self.closed:
            self.outlet.write(frames.window_update(self.id, self._owed))
            self._owed = 0

    def _release(self, size: int) -> None:
        self._held -= size
        self.connection.release(size)

    # ── sending ───────────────────────────────────────────────────────────────────────────────────────

    def put(self, message: bytes) -> None:
        """Send a message, at once or when there is room."""
        self._out.append(PREFIX.pack(0, len(message)))
        if message:
            self._out.append(message)
        self.outlet.unsent += len(message) + 5
        self.outlet.add(self)
        if self._out:
            self._watch_sending()

    async def room(self) -> None:
        """Wait until all that was put is on its way. Raises the stream's error when it breaks."""
        while self._out and not self.closed:
            writer = self.connection.loop.create_future()
            self._writers.append(writer)
            await writer
        if self.closed and self.error is not None:
            raise self.error

    def send_frame(self) -> bool:
        """See `Sender`."""
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
        self.connection.forgive(1 + size // FORGIVING_BYTES)
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
        """Nothing will be put any more: `ending` follows what was."""
        self.ending = ending
        if not self._out:
            if not ending:
                self.outlet.write(frames.frame(frames.DATA, END_STREAM, self.id))
            self._all_is_out()

    def sent(self) -> None:
        """The last frame of our direction is out."""
        self.sent_all = True

    def widen(self, increment: int) -> None:
        """The peer's window for this stream grew, or shrank with its settings."""
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
        """End what has lasted too long; when to look again."""
        if self._send_due <= now:
            if not self._moved:
                self.stalled()
                return NEVER
            self._moved = False
            self._send_due = now + self.connection.send_timeout
        return self._send_due

    def stalled(self) -> None:
        """The peer has taken nothing for too long."""
        self.break_off(ErrorCode.CANCEL)

    def refuse(self, error: GrpcError) -> None:
        """What came is wrong."""
        raise NotImplementedError

    def break_off(self, code: ErrorCode) -> None:
        """Reset the stream: no more in either direction."""
        if not self.closed:
            self.outlet.write(frames.rst_stream(self.id, code))
            self.close(GrpcError(Code.CANCELLED, "The stream was reset."))
            self.discard()

    def close(self, error: Exception | None) -> None:
        """Neither direction will carry any more; whoever waits is told `error`."""
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

    def discard(self) -> None:
        """Nobody will read what has come."""
        if not self.deaf:
            self.deaf = True
            self.inbox = Inbox(0)
            self._release(self._held)
