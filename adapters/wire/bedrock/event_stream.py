"""AWS's event stream, `application/vnd.amazon.eventstream`: frames with headers, a payload and two checksums.

    u32 length of the frame | u32 length of the headers | u32 CRC-32 of these 8 bytes
    headers: u8 length, name, u8 type, value | payload | u32 CRC-32 of all bytes before it

All numbers are big-endian. Bedrock's headers are texts: `:message-type`, `:event-type` and others.
"""

import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple
from zlib import crc32

CONTENT_TYPE = "application/vnd.amazon.eventstream"
MAX_HEADERS = 128 * 1024
MAX_FRAME = 24 * 1024 * 1024 + MAX_HEADERS + 16
"""Bytes of the largest frame that AWS's own decoders accept."""

_PRELUDE = struct.Struct(">III")
_CRC = struct.Struct(">I")
_TEXT_LENGTH = struct.Struct(">H")
_TEXT = 7
_FIXED = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""The bytes of a value by its type; types 6 and 7 begin with their length."""
_OVERHEAD = _PRELUDE.size + _CRC.size


class BrokenFrame(ValueError):
    """A frame that cannot be read. The message states the reason."""


class StreamFrame(NamedTuple):
    """One message of a stream."""

    headers: Mapping[str, str]
    """The headers that are texts; shared, so not to be changed."""
    payload: bytes

    @property
    def kind(self) -> str:
        """`event`, `exception` or `error`."""
        return self.headers.get(":message-type", "")

    @property
    def event(self) -> str:
        """The name of an event."""
        return self.headers.get(":event-type", "")


def encode(headers: Mapping[str, str], payload: bytes) -> bytes:
    """Encode a frame. Header values have at most 32,767 bytes."""
    encoded = b"".join([_header(name.encode(), value.encode()) for name, value in headers.items()])
    lengths = struct.pack(">II", len(encoded) + len(payload) + _OVERHEAD, len(encoded))
    frame = lengths + _CRC.pack(crc32(lengths)) + encoded + payload
    return frame + _CRC.pack(crc32(frame))


def encode_event(event: str, payload: bytes) -> bytes:
    """Encode an event with a payload in JSON."""
    headers = {":event-type": event, ":content-type": "application/json", ":message-type": "event"}
    return encode(headers, payload)


def encode_exception(exception: str, payload: bytes) -> bytes:
    """Encode an exception, which ends a stream. Its payload is `{"message": …}`."""
    headers = {":exception-type": exception, ":content-type": "application/json", ":message-type": "exception"}
    return encode(headers, payload)


def _header(name: bytes, value: bytes) -> bytes:
    return bytes((len(name),)) + name + bytes((_TEXT,)) + _TEXT_LENGTH.pack(len(value)) + value


class FrameSplitter:
    """Splits a byte stream into frames of at most `limit` bytes, wherever the stream is cut."""

    __slots__ = ("_headers", "_limit", "_needed", "_rest")

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self._limit = min(limit, MAX_FRAME)
        self._rest = bytearray()
        self._needed = _PRELUDE.size
        """Bytes until the next step of the decoder."""
        self._headers: dict[bytes, Mapping[str, str]] = {}
        """The decoded headers of frames before: a stream has few different ones."""

    @property
    def halfway(self) -> bool:
        """Whether a frame is incomplete."""
        return bool(self._rest)

    def feed(self, data: bytes) -> Iterator[StreamFrame]:
        """Yield the frames that `data` completes; exhaust it before the next call.

        Raises `BrokenFrame` after the frames before the broken one. The stream has no meaning from there on.
        """
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed:
                return
            data, self._rest = bytes(self._rest), bytearray()
        at, size, self._needed = 0, len(data), _PRELUDE.size
        while size - at >= _PRELUDE.size:
            length, headers = self._prelude(data, at)
            if size - at < length:
                self._needed = length
                break
            yield self._frame(data, at, at + length, headers)
            at += length
        if at < size:
            self._rest += data[at:]

    def _prelude(self, data: bytes, at: int) -> tuple[int, int]:
        """The lengths of a frame and of its headers."""
        length, headers, checksum = _PRELUDE.unpack_from(data, at)
        if crc32(data[at : at + 8]) != checksum:
            raise BrokenFrame("the checksum of a frame's lengths is wrong")
        if headers > MAX_HEADERS or headers + _OVERHEAD > length:
            raise BrokenFrame("a frame's lengths do not fit together")
        if length > self._limit:
            raise BrokenFrame(f"a frame exceeds {self._limit} bytes")
        return length, headers

    def _frame(self, data: bytes, start: int, end: int, headers: int) -> StreamFrame:
        checked = memoryview(data)[start : end - _CRC.size]
        if crc32(checked) != _CRC.unpack_from(data, end - _CRC.size)[0]:
            raise BrokenFrame("the checksum of a frame is wrong")
        begin = start + _PRELUDE.size + headers
        encoded = data[start + _PRELUDE.size : begin]
        decoded = self._headers.get(encoded)
        if decoded is None:
            decoded = _decode_headers(encoded)
            if len(self._headers) < 64 and len(encoded) < 1024:
                self._headers[encoded] = decoded
        return StreamFrame(decoded, data[begin : end - _CRC.size])


def _decode_headers(data: bytes) -> dict[str, str]:
    """The texts of encoded headers. Values of other types are skipped."""
    headers, names, at = dict[str, str](), set[bytes](), 0
    try:
        while at < len(data):
            name = data[at + 1 : at + 1 + data[at]]
            at += 1 + len(name)
            if not name or name in names:
                raise BrokenFrame("a frame has a header twice, or one without a name")
            names.add(name)
            kind = data[at]
            at += 1
            length = _FIXED.get(kind)
            if length is None:
                if kind not in (6, _TEXT):
                    raise BrokenFrame(f"a frame has a header of the unknown type {kind}")
                length = _TEXT_LENGTH.unpack_from(data, at)[0]
                at += _TEXT_LENGTH.size
            value = data[at : at + length]
            at += length
            if len(value) != length:
                raise BrokenFrame("a frame's headers are cut")
            if kind == _TEXT:
                headers[name.decode()] = value.decode()
    except (IndexError, struct.error, UnicodeDecodeError):
        raise BrokenFrame("a frame's headers cannot be read") from None
    return headers
