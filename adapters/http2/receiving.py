"""The receiving half of a stream: assembles messages from DATA and extends the peer's window as they are read."""

from __future__ import annotations

import asyncio

from adapters.errors import InferenceError, LimitExceeded, TooLarge
from adapters.http1.budget import COPIES, FREE_BYTES, Budget
from adapters.http2 import frames
from adapters.http2.carrier import Carrier
from adapters.http2.codes import Code
from adapters.http2.frames import ErrorCode
from adapters.http2.inbox import Compressed, Inbox, inflate
from adapters.http2.status import GrpcError

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
