"""One stream of a connection: sends and receives messages within the windows of both directions."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Protocol

from adapters.errors import InferenceError, LimitExceeded, TooLarge
from adapters.http1.budget import COPIES, FREE_BYTES, Budget
from adapters.http1.sweeper import NEVER
from adapters.http2 import frames
from adapters.http2.frames import CALM_PER_FRAME, END_STREAM, FORGIVING_BYTES, HEADER, ErrorCode
from adapters.http2.inbox import PREFIX, Compressed, Inbox, inflate
from adapters.http2.sending import Outlet
from adapters.http2.status import Code, GrpcError

# The receiving half of a stream: assembles messages from DATA and extends the peer's window as they are read.

STREAM_WINDOW = 256 * 1024
"""Unread bytes that a peer may send on one stream. During the read of a message the peer may send its whole rest."""
INFLATE_INLINE = 64 * 1024
"""Compressed bytes above which a message is inflated in a thread."""


class Receiving:
    """Receives messages for one reader at a time. `read` raises `error` after the messages that arrived before it."""

    __slots__ = (
        "_charged", "_held", "_paid", "_reader", "_window", "budget", "closed", "connection",
        "deaf", "encoding", "error", "id", "inbox", "received_all",
    )  # fmt: skip

    def __init__(self, connection: Carrier, stream_id: int) -> None:
        self.connection = connection
        self.id = stream_id
        self.inbox = Inbox(connection.max_message)
        self.encoding = b""
        self.received_all = False
        self.closed = False
        self.deaf = False  # further messages are discarded
        self.error: Exception | None = None
        self.budget: Budget | None = None
        self._charged = 0
        self._paid = FREE_BYTES  # bytes that may be held without another charge
        self._held = 0  # bytes in the inbox
        self._window = STREAM_WINDOW  # bytes that the peer may send
        self._reader: asyncio.Future[None] | None = None

    def receive(self, data: bytes, start: int, stop: int, padding: int, *, last: bool) -> None:
        """Receive `data[start:stop]` and `padding` bytes of padding."""
        size = stop - start
        self._window -= size + padding
        if self._window < 0:
            self.break_off(ErrorCode.FLOW_CONTROL_ERROR)
            return
        self.received_all = last
        if self.deaf:
            return
        self._held += size
        self.connection.hold(size)
        try:
            self.inbox.feed(data, start, stop)
            if self.connection.held > self.connection.max_held:
                raise GrpcError(Code.RESOURCE_EXHAUSTED, "This connection has too many unread messages under way.")
            if self._held > self._paid:
                self._pay(self._held)
            if not last and self.inbox.halfway and self.inbox.arrived < size:
                self.begun()
            self.wake()
        except GrpcError as error:
            self.refuse(error)

    def begun(self) -> None:
        """Handle the beginning of an incomplete message."""

    async def read(self) -> bytes | None:
        """Return the next message; None after the last message. Raises `GrpcError`."""
        messages = self.inbox.messages
        while not messages:
            if self.inbox.uncut:
                await asyncio.sleep(0)  # many small messages must not occupy the loop
                self.inbox.cut()
                continue
            if self.error is not None:
                raise self.error
            if self.received_all:
                if self.inbox.halfway:
                    raise GrpcError(Code.INTERNAL, "The stream ends inside a message.")
                return None
            if self._charged and not self._held:
                self._release_charge()
            self._credit()
            await self._arrival()
        message = messages.popleft()
        compressed = isinstance(message, Compressed)
        data = message.data if isinstance(message, Compressed) else message
        self._release(len(data) + 5)
        if not messages:
            self._credit()
        return await self._inflated(data) if compressed else data

    async def _arrival(self) -> None:
        self._reader = self.connection.loop.create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    async def _inflated(self, message: bytes) -> bytes:
        if len(message) <= INFLATE_INLINE:
            data = inflate(message, self.encoding, self.inbox.limit)
        else:
            data = await asyncio.to_thread(inflate, message, self.encoding, self.inbox.limit)
        self._pay(self._held + len(message) + len(data))
        return data

    # ── held bytes ──────────────────────────────────────────────────────────────────────────────────

    def charge_to(self, budget: Budget) -> None:
        """Charge held and future bytes to `budget` until the end of the call. Raises `InferenceError`."""
        before, self.budget = self.budget, budget
        if self._charged:
            if before is not None:
                before.give(self._charged)
            charged, self._charged = self._charged, 0
            budget.take(charged)
            self._charged = charged

    def _pay(self, size: int) -> None:
        """Reserve memory for `size` bytes. Raises `GrpcError`."""
        if self.budget is None or size <= self._paid:
            return
        charge = COPIES * size - self._charged
        try:
            self.budget.take(charge)
        except InferenceError as error:
            mine = isinstance(error, LimitExceeded | TooLarge)
            raise GrpcError(Code.RESOURCE_EXHAUSTED if mine else Code.UNAVAILABLE, error.message) from None
        self._charged += charge
        self._paid = size

    def _release_charge(self) -> None:
        if self._charged and self.budget is not None:
            self.budget.give(self._charged)
        self._charged = 0
        self._paid = FREE_BYTES

    def wake(self) -> None:
        """Wake the reader after any input."""
        if self._reader is not None:
            if not self._reader.done():
                self._reader.set_result(None)
            if not self.inbox.messages:
                self._credit()

    def _credit(self) -> None:
        """Extend the peer's window after all complete messages have been read.

        The window covers the whole rest of an incomplete message if the budget has room. Raises `GrpcError`.
        """
        if self.received_all or self.closed:
            return
        missing = self.inbox.missing
        window = max(STREAM_WINDOW, missing)
        if window - self._window >= STREAM_WINDOW // 2:
            if missing:
                self._pay(self._held + missing)
            self.connection.outlet.write(frames.window_update(self.id, window - self._window))
            self._window = window

    def _release(self, size: int) -> None:
        self._held -= size
        self.connection.release(size)

    def discard(self) -> None:
        """Discard received messages and release their memory."""
        self._release_charge()
        if not self.deaf:
            self.deaf = True
            if self._held:
                self.inbox = Inbox(0)
                self._release(self._held)

    def refuse(self, error: GrpcError) -> None:
        """End the stream after invalid input."""
        raise NotImplementedError

    def break_off(self, code: ErrorCode) -> None:
        """Reset the stream."""
        raise NotImplementedError


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


# The interface of a connection to its streams: both halves of a stream depend on it, not on a connection.


class Carrier(Protocol):
    """A connection, as its streams use it: the limits of each stream, and the bytes that all streams hold."""

    loop: asyncio.AbstractEventLoop
    outlet: Outlet
    held: int
    max_message: int
    max_held: int
    send_timeout: float

    def hold(self, size: int) -> None:
        """Count bytes of a message that has not been read yet."""

    def release(self, size: int) -> None:
        """Remove bytes from the count."""

    def forgive(self, count: int) -> None:
        """Allow the peer `count` more frames that belong to no call."""

    def look_at(self, when: float) -> None:
        """Check the deadlines of all streams at `when` or earlier."""

    def forget(self, stream: Any, /) -> None:
        """Remove a closed stream."""
