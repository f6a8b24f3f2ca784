"""HTTP/2 frames: constants, encoders and the splitting of received bytes (RFC 9113 sections 4, 6 and 7)."""

import asyncio
from collections.abc import Callable
from enum import IntEnum
from struct import Struct

HEADER = Struct(">HBBBI")
"""Length (16 bits, then 8 bits), kind, flags, stream id."""
HEADER_BYTES = 9
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
WITH_PRIORITY = 0x20

HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = (
    range(1, 7)
)
SETTING = Struct(">HI")
WORD = Struct(">I")
GOAWAY_HEAD = Struct(">II")

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DEFAULT_WINDOW = 65_535
DEFAULT_FRAME = 16_384
MAX_WINDOW = 2**31 - 1
MAX_STREAM_ID = 2**31 - 1


class ErrorCode(IntEnum):
    """The reason for the end of a stream or a connection."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    SETTINGS_TIMEOUT = 0x4
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    CONNECT_ERROR = 0xA
    ENHANCE_YOUR_CALM = 0xB
    INADEQUATE_SECURITY = 0xC
    HTTP_1_1_REQUIRED = 0xD


class Violation(Exception):
    """A violation of the protocol or of a limit that ends the connection."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """Encode a frame."""
    size = len(payload)
    return HEADER.pack(size >> 8, size & 0xFF, kind, flags, stream_id) + payload


def header_frames(stream_id: int, block: bytes, flags: int, max_frame: int) -> bytes:
    """Encode a header block as one HEADERS frame, followed by CONTINUATION frames if the block is too long."""
    if len(block) <= max_frame:
        return frame(HEADERS, flags | END_HEADERS, stream_id, block)
    pieces = [frame(HEADERS, flags, stream_id, block[:max_frame])]
    for at in range(max_frame, len(block), max_frame):
        last = at + max_frame >= len(block)
        pieces.append(frame(CONTINUATION, END_HEADERS if last else 0, stream_id, block[at : at + max_frame]))
    return b"".join(pieces)


def settings_frame(settings: dict[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join([SETTING.pack(*setting) for setting in settings.items()]))


def window_update(stream_id: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream_id, WORD.pack(increment))


def rst_stream(stream_id: int, code: ErrorCode) -> bytes:
    return frame(RST_STREAM, 0, stream_id, WORD.pack(code))


def goaway(last_stream_id: int, code: ErrorCode, message: str = "") -> bytes:
    return frame(GOAWAY, 0, 0, GOAWAY_HEAD.pack(last_stream_id, code) + message.encode())


# The allowance of frames that belong to no call: time and responses that the peer accepts refill it.

CALM = 2000
"""Frames that belong to no call and that a peer may send at once."""
CALM_EARNED = 10 * CALM
"""The maximum of the allowance: window updates follow a burst of DATA with a delay."""
CALM_PER_SECOND = 200.0
CALM_PER_CALL = 8
CALM_PER_FRAME = 4
FORGIVING_BYTES = 4096
"""Bytes of sent DATA that allow one more frame: a peer sends two window updates for each frame, and pings."""


# Splits the received bytes of a connection into frames.
#
# The parts of a DATA frame are passed on as they arrive, so that the frame needs no buffer. Every other frame is
# passed on as a whole, and its size is bounded.
#
# Each turn of the loop handles a bounded number of frames of a connection. The remaining frames wait for the next turn,
# and reading is paused meanwhile: a flood on one connection delays no other connection.

MAX_DATA_FRAME = 1024 * 1024
"""Maximum size of a DATA frame that the peer may send: fewer and larger frames cost less."""
MAX_OTHER_FRAME = 64 * 1024

TURN_FRAMES = 64
"""Frames of one turn of the loop. A frame other than DATA counts one more for each `COSTLY_BYTES` of its length."""
COSTLY_BYTES = 512
MAX_WAITING = 64 * 1024
"""Waiting bytes above which reading is paused."""

OnFrame = Callable[[int, int, bytes], None]


class Framing(asyncio.Protocol):
    """The receiving half of a connection. A subclass implements the methods in the section `events`."""

    __slots__ = (
        "_data_flags", "_data_left", "_data_stream", "_deaf", "_gathering", "_greeting", "_on_frame", "_rest",
        "_stopped", "_waiting", "reads", "loop", "transport",
    )  # fmt: skip
    transport: asyncio.Transport

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._waiting = False  # complete frames wait for the next turn
        self._stopped = False  # reading of the transport is paused
        self._greeting: bytes | None = None  # the required first bytes, before SETTINGS; None after both
        self._rest = b""  # the beginning of an incomplete frame
        self._data_left = 0  # bytes still to receive of a partially received DATA frame
        self._data_flags = 0
        self._data_stream = 0
        self._gathering = False  # a header block is incomplete: only CONTINUATION may follow
        self._deaf = False  # further input is discarded
        self.reads = 0  # number of reads with a complete frame: a drip of bytes counts as silence
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
        """Handle all remaining frames after the peer's close. The size of one read bounds the remainder."""
        while self._waiting and not self._deaf:
            self._next_turn()

    def _adjust_reading(self) -> None:
        """Pause or resume reading. A closing connection reads until the peer has closed."""
        stop = self._waiting and not self._deaf and len(self._rest) > MAX_WAITING
        if stop is not self._stopped and not self.transport.is_closing():
            self._stopped = stop
            if stop:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    def _greeted(self, data: bytes, greeting: bytes) -> bytes:
        """Check the greeting. Returns the bytes after it; empty while it is incomplete."""
        self._rest = data
        size = len(greeting)
        if data[:size] != greeting[: len(data)]:
            self._on_noise(data)
            return b""
        if len(data) < size + HEADER_BYTES:
            return b""
        _, _, kind, flags, _ = HEADER.unpack_from(data, size)
        if kind != SETTINGS or flags & ACK:
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
                    self._part_of_data(flags, stream_id & MAX_STREAM_ID, data, start, stop)
                    at = end
                    break
            at = stop
            if self._gathering and kind != CONTINUATION:
                raise Violation(ErrorCode.PROTOCOL_ERROR, "a header block is interrupted")
            if not kind and not flags & PADDED:
                left -= 1
                self._on_data(flags, stream_id & MAX_STREAM_ID, data, start, stop, 0)
            elif kind < len(self._on_frame):
                left -= 1 + (stop - start) // COSTLY_BYTES
                self._on_frame[kind](flags, stream_id & MAX_STREAM_ID, data[start:stop])
            else:
                left -= 1
                self._on_unknown(flags)
            if self._deaf:
                at = end
        self._rest = data[at:] if at < end else b""
        if at:
            self.reads += 1
        if self._waiting:
            self._adjust_reading()

    def _check_size(self, kind: int, size: int) -> None:
        if size > (MAX_DATA_FRAME if kind == DATA else MAX_OTHER_FRAME):
            raise Violation(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {size} bytes is too large")

    def _part_of_data(self, flags: int, stream_id: int, data: bytes, start: int, stop: int) -> None:
        """Handle the beginning of an incomplete DATA frame."""
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
        """Handle a peer that does not begin with HTTP/2's greeting."""
        raise NotImplementedError

    def _on_greeted(self) -> None:
        """Handle the end of a valid greeting."""

    # ── events ────────────────────────────────────────────────────────────────────────────────────────

    def _on_data(self, flags: int, stream_id: int, data: bytes, start: int, stop: int, padding: int) -> None:
        """Handle `data[start:stop]` of a stream, which was received with `padding` further bytes."""
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
    """Return the start and the end of a padded frame's content."""
    if not payload or payload[0] >= len(payload):
        raise Violation(ErrorCode.PROTOCOL_ERROR, "a frame is shorter than its padding")
    return 1, len(payload) - payload[0]
