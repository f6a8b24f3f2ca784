"""HTTP/2 frames: constants and encoders (RFC 9113 sections 4, 6 and 7)."""

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
