"""The receiving half of a stream: DATA into messages, and the peer's window opened as they are read."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from adapters.http2 import frames
from adapters.http2.frames import ErrorCode
from adapters.http2.inbox import Compressed, Inbox, inflate
from adapters.http2.status import Code, GrpcError

if TYPE_CHECKING:
    from adapters.http2.connection import Connection

STREAM_WINDOW = 16 * 1024 * 1024
"""Bytes that a peer may send of one stream before somebody reads."""
INFLATE_INLINE = 64 * 1024
"""Compressed bytes above which inflating leaves the loop's thread."""


class Receiving:
    """One reader at a time. `error` is what it is told once it has read what came before."""

    __slots__ = (
        "_held", "_owed", "_reader", "closed", "connection", "deaf", "encoding", "error", "id", "inbox", "received_all",
    )  # fmt: skip

    def __init__(self, connection: Connection[Any], stream_id: int) -> None:
        self.connection = connection
        self.id = stream_id
        self.inbox = Inbox(connection.max_message)
        self.encoding = b""
        self.received_all = False
        self.closed = False
        self.deaf = False  # nobody reads any more
        self.error: Exception | None = None
        self._held = 0  # bytes in the inbox
        self._owed = 0  # bytes received and not given back to the peer's window
        self._reader: asyncio.Future[None] | None = None

    def receive(self, data: bytes, start: int, stop: int, padding: int, *, last: bool) -> None:
        """`data[start:stop]` came, after `padding` bytes of nothing."""
        size = stop - start
        self._owed += size + padding
        if self._owed > STREAM_WINDOW:
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
        except GrpcError as error:
            self.refuse(error)
            return
        if not last and self.inbox.halfway and self.inbox.arrived < size:
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
            self.connection.outlet.write(frames.window_update(self.id, self._owed))
            self._owed = 0

    def _release(self, size: int) -> None:
        self._held -= size
        self.connection.release(size)

    def discard(self) -> None:
        """Nobody will read what has come."""
        if not self.deaf:
            self.deaf = True
            if self._held:
                self.inbox = Inbox(0)
                self._release(self._held)

    def refuse(self, error: GrpcError) -> None:
        """What came is wrong."""
        raise NotImplementedError

    def break_off(self, code: ErrorCode) -> None:
        """Reset the stream."""
        raise NotImplementedError
