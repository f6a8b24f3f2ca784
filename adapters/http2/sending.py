"""The sending half of a connection: sends a frame of each stream in turn, within the peer's windows."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from adapters.http2.frames import DEFAULT_FRAME, DEFAULT_WINDOW, MAX_WINDOW, ErrorCode, Violation

WRITE_BUFFER = 128 * 1024
"""Bytes in the buffer of the transport above which no DATA is written."""

TURN_BYTES = 128 * 1024
"""Queued bytes above which the queue is written before the end of the loop's turn."""
JOINED_BYTES = 32 * 1024
MAX_SENT_FRAME = 256 * 1024
"""Maximum bytes of DATA in a frame, even if the peer accepts more, so that streams take turns."""


class Sender(Protocol):
    """A stream with something to send."""

    id: int
    window: int

    def send_frame(self) -> bool:
        """Send one DATA frame. Returns whether more data is pending and fits the stream's own window."""


class Outlet:
    """Writes the frames of all streams of a connection.

    `window` is the peer's window for the connection, `unsent` the number of bytes that wait for it.
    """

    __slots__ = (
        "_loop", "_queued", "_ready", "_size", "_streams", "_transport", "initial_window", "max_frame", "paused",
        "unsent", "window", "write",
    )  # fmt: skip

    def __init__(
        self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, streams: Mapping[int, Sender]
    ) -> None:
        transport.set_write_buffer_limits(WRITE_BUFFER)
        self._loop = loop
        self._transport = transport
        self._streams = streams
        self._queued: list[bytes | memoryview] = []  # written at the end of the loop's turn
        self._size = 0
        self.write: Callable[[bytes | memoryview], None] = self._write
        self.window = DEFAULT_WINDOW
        self.initial_window = DEFAULT_WINDOW
        self.max_frame = DEFAULT_FRAME
        self.paused = False
        self.unsent = 0
        self._ready: dict[int, Sender] = {}  # streams with pending data and an open window

    def _write(self, data: bytes | memoryview) -> None:
        """Write at once for a single stream; otherwise queue the data until the end of the loop's turn.

        The responses of a batch of calls then need only one system call.
        """
        queued = self._queued
        if not queued and len(self._streams) < 2:
            self._transport.write(data)
            return
        if not queued:
            self._loop.call_soon(self.flush)
        queued.append(data)
        self._size += len(data)
        if self._size > TURN_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the queued data."""
        queued, size = self._queued, self._size
        if queued:
            self._queued, self._size = [], 0
            if size <= JOINED_BYTES:
                self._transport.write(b"".join(queued))
            else:
                self._transport.writelines(queued)

    def add(self, sender: Sender) -> None:
        """Add a stream with pending data."""
        self._ready[sender.id] = sender
        self.pump()

    def remove(self, sender: Sender) -> None:
        self._ready.pop(sender.id, None)

    def pump(self) -> None:
        """Send pending data of all streams as far as the connection permits."""
        ready = self._ready
        while ready and self.window > 0 and not self.paused:
            stream_id = next(iter(ready))
            sender = ready.pop(stream_id)
            if sender.send_frame():
                ready[stream_id] = sender

    def widen(self, increment: int) -> None:
        """Increase the window of the connection."""
        self.window += increment
        if self.window > MAX_WINDOW:
            raise Violation(ErrorCode.FLOW_CONTROL_ERROR, "the connection's window is larger than a window may be")
        self.pump()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self.pump()

    def cut(self) -> None:
        """Discard all further writes after the loss of the transport."""
        self.write = _into_nothing
        self._queued.clear()
        self._ready.clear()


def _into_nothing(data: bytes | memoryview) -> None:
    pass
