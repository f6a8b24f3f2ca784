"""Bytes cut into frames, whatever the pieces in which they come.

A DATA frame is handed on as it arrives, so that its size costs no memory here; every other frame is handed on
whole, and may be no larger than a head.

One turn of the loop cuts a bounded number of frames of a connection. The rest waits for the next turn, and the socket
is not read meanwhile: a connection that floods delays no other one.
"""

import asyncio
from collections.abc import Callable

from adapters.http2 import frames
from adapters.http2.frames import HEADER, HEADER_BYTES, PADDED, ErrorCode, Violation

MAX_DATA_FRAME = 1024 * 1024
"""What we allow the peer to send in one: fewer, larger frames cost less to cut."""
MAX_OTHER_FRAME = 64 * 1024

TURN_FRAMES = 64
"""Frames of one turn of the loop. A frame other than DATA counts once more for each `COSTLY_BYTES` of it."""
COSTLY_BYTES = 512
MAX_WAITING = 64 * 1024
"""Bytes that wait for their turn, above which no more are read."""

OnFrame = Callable[[int, int, bytes], None]


class Framing(asyncio.Protocol):
    """The receiving half of a connection. Its events are the methods below `events`."""

    __slots__ = (
        "_data_flags", "_data_left", "_data_stream", "_deaf", "_gathering", "_greeting", "_on_frame", "_rest",
        "_stopped", "_waiting", "heard", "loop", "transport",
    )  # fmt: skip
    transport: asyncio.Transport

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._waiting = False  # whole frames wait for the next turn
        self._stopped = False  # the transport does not read
        self._greeting: bytes | None = None  # what must come first, and then SETTINGS; None behind both
        self._rest = b""  # of a frame that is not whole
        self._data_left = 0  # bytes to come of a DATA frame of which a part was handed on
        self._data_flags = 0
        self._data_stream = 0
        self._gathering = False  # a header block is not whole: only CONTINUATION may come
        self._deaf = False  # nothing that comes is of interest any more
        self.heard = 0  # how often anything came that was whole: bytes that drip are silence
        self._on_frame: tuple[OnFrame, ...] = (
            self._on_padded_data, self._on_headers, self._on_priority, self._on_reset, self._on_settings,
            self._on_push_promise, self._on_ping, self._on_goaway, self._on_window_update, self._on_continuation,
        )  # fmt: skip

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        if self._rest:
            data = self._rest + data
        if self._waiting:
            self._rest = data
            self._adjust_reading()
        else:
            self._take(data)

    def _take(self, data: bytes) -> None:
        try:
            if self._greeting is not None:
                data = self._greeted(data, self._greeting)
            if data:
                self._cut(data)
        except Violation as violation:
            self._on_violation(violation)

    def _next_turn(self) -> None:
        if not self._waiting:
            return
        self._waiting = False
        data, self._rest = self._rest, b""
        if not self._deaf:
            self._take(data)
        self._adjust_reading()

    def _take_all(self) -> None:
        """The peer has closed the connection: nothing comes behind the rest, which a read bounds."""
        while self._waiting and not self._deaf:
            self._next_turn()

    def _adjust_reading(self) -> None:
        """A connection that is closing is read until its peer has closed, too."""
        stop = self._waiting and not self._deaf and len(self._rest) > MAX_WAITING
        if stop is not self._stopped and not self.transport.is_closing():
            self._stopped = stop
            if stop:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    def _greeted(self, data: bytes, greeting: bytes) -> bytes:
        """What follows the greeting; nothing while it is not whole."""
        self._rest = data
        size = len(greeting)
        if data[:size] != greeting[: len(data)]:
            self._on_noise(data)
            return b""
        if len(data) < size + HEADER_BYTES:
            return b""
        _, _, kind, flags, _ = HEADER.unpack_from(data, size)
        if kind != frames.SETTINGS or flags & frames.ACK:
            self._on_noise(data)
            return b""
        self._greeting = None
        self._rest = b""
        self._on_greeted()
        return data[size:]

    def _cut(self, data: bytes) -> None:
        at, end, left = 0, len(data), TURN_FRAMES
        if self._data_left:
            at = self._more_of_data(data, end)
        while end - at >= HEADER_BYTES:
            if left <= 0:
                self._waiting = True
                self.loop.call_soon(self._next_turn)
                break
            high, low, kind, flags, stream_id = HEADER.unpack_from(data, at)
            start = at + HEADER_BYTES
            stop = start + (high << 8 | low)
            if stop > end or stop - start > MAX_OTHER_FRAME:
                self._check_size(kind, stop - start)
                if stop > end:
                    if kind or flags & PADDED or self._gathering:
                        break
                    self._part_of_data(flags, stream_id & frames.MAX_STREAM_ID, data, start, stop)
                    at = end
                    break
            at = stop
            if self._gathering and kind != frames.CONTINUATION:
                raise Violation(ErrorCode.PROTOCOL_ERROR, "a header block is interrupted")
            if not kind and not flags & PADDED:
                left -= 1
                self._on_data(flags, stream_id & frames.MAX_STREAM_ID, data, start, stop, 0)
            elif kind < len(self._on_frame):
                left -= 1 + (stop - start) // COSTLY_BYTES
                self._on_frame[kind](flags, stream_id & frames.MAX_STREAM_ID, data[start:stop])
            else:
                left -= 1
                self._on_unknown(flags)
            if self._deaf:
                at = end
        self._rest = data[at:] if at < end else b""
        if at:
            self.heard += 1
        if self._waiting:
            self._adjust_reading()

    def _check_size(self, kind: int, size: int) -> None:
        if size > (MAX_DATA_FRAME if kind == frames.DATA else MAX_OTHER_FRAME):
            raise Violation(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {size} bytes is too large")

    def _part_of_data(self, flags: int, stream_id: int, data: bytes, start: int, stop: int) -> None:
        """The beginning of a DATA frame: its end is still on the way."""
        self._data_left = stop - len(data)
        self._data_flags = flags
        self._data_stream = stream_id
        if start < len(data):
            self._on_data(0, stream_id, data, start, len(data), 0)

    def _more_of_data(self, data: bytes, end: int) -> int:
        stop = min(end, self._data_left)
        self._data_left -= stop
        self._on_data(0 if self._data_left else self._data_flags, self._data_stream, data, 0, stop, 0)
        return stop

    def _on_padded_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        start, stop = unpadded(payload)
        self._on_data(flags, stream_id, payload, start, stop, len(payload) - (stop - start))

    def _on_noise(self, data: bytes) -> None:
        """The peer does not begin as HTTP/2 begins."""
        raise NotImplementedError

    def _on_greeted(self) -> None:
        """It does."""

    # ── events ────────────────────────────────────────────────────────────────────────────────────────

    def _on_data(self, flags: int, stream_id: int, data: bytes, start: int, stop: int, padding: int) -> None:
        """`data[start:stop]` of a stream; `padding` more bytes were received with it."""
        raise NotImplementedError

    def _on_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        raise NotImplementedError

    def _on_continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        raise NotImplementedError

    def _on_priority(self, flags: int, stream_id: int, payload: bytes) -> None:
        raise NotImplementedError

    def _on_reset(self, flags: int, stream_id: int, payload: bytes) -> None:
        raise NotImplementedError

    def _on_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        raise NotImplementedError

    def _on_push_promise(self, flags: int, stream_id: int, payload: bytes) -> None:
        raise NotImplementedError

    def _on_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        raise NotImplementedError

    def _on_goaway(self, flags: int, stream_id: int, payload: bytes) -> None:
        raise NotImplementedError

    def _on_window_update(self, flags: int, stream_id: int, payload: bytes) -> None:
        raise NotImplementedError

    def _on_unknown(self, flags: int) -> None:
        raise NotImplementedError

    def _on_violation(self, violation: Violation) -> None:
        raise NotImplementedError


def unpadded(payload: bytes) -> tuple[int, int]:
    """Where the content of a padded frame begins and ends."""
    if not payload or payload[0] >= len(payload):
        raise Violation(ErrorCode.PROTOCOL_ERROR, "a frame is shorter than its padding")
    return 1, len(payload) - payload[0]
