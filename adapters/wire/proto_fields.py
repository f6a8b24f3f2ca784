"""Cuts fields out of a protobuf message, and inserts them, by their tags and without copies."""

from functools import lru_cache

from adapters.tensors import Data

_DELIMITED = 2


class MalformedMessage(ValueError):
    """Bytes that are not a protobuf message."""


def tag(number: int) -> int:
    """Return the tag of a string, bytes or message field up to number 15."""
    return number << 3 | _DELIMITED


def split(message: Data, text: int, raw: int) -> tuple[bytes, str, list[Data]]:
    """Split off two fields of a message: the last value of tag `text`, and all values of tag `raw`.

    The message retains all bytes from the first unknown tag on.
    """
    view, parts, values = memoryview(message), list[Data](), list[Data]()
    at = copied = 0
    end, name = len(message), b""
    try:
        while at < end:
            this = message[at]
            if this & 7 != _DELIMITED or this > 127:
                break
            start, length = at + 2, message[at + 1]
            if length > 127:
                start, length = _length(message, at + 1)
            stop = start + length
            if stop > end:
                raise MalformedMessage("a field is longer than the message")
            if this in (raw, text):
                parts.append(message[copied:at])
                copied = stop
                if this == raw:
                    values.append(view[start:stop])
                else:
                    name = bytes(message[start:stop])
            at = stop
        parts.append(message[copied:])
        return b"".join(parts), name.decode(), values
    except (IndexError, UnicodeDecodeError) as error:
        raise MalformedMessage(str(error)) from None


def bytes_beside(message: bytes, raw: int, most: int) -> int:
    """Count a message's bytes outside its fields of tag `raw`; all its bytes if it has more than `most` fields."""
    at, end, beside = 0, len(message), 0
    try:
        for _ in range(most):
            if at >= end:
                return beside
            start, length = _length(message, at + 1)
            if message[at] & 7 != _DELIMITED:
                break
            if message[at] != raw:
                beside += start - at + length
            at = start + length
    except IndexError:
        pass
    return end


def numbers(message: bytes) -> set[int]:
    """Return the numbers of a message's length-delimited fields. Raises `MalformedMessage`."""
    present, at = set[int](), 0
    try:
        while at < len(message) and message[at] & 7 == _DELIMITED:
            present.add(message[at] >> 3)
            start, length = _length(message, at + 1)
            at = start + length
    except IndexError as error:
        raise MalformedMessage(str(error)) from None
    if at > len(message):
        raise MalformedMessage("a field is longer than the message")
    return present


def _length(message: Data, at: int) -> tuple[int, int]:
    """Return the start and the length of a field's value."""
    length = shift = 0
    while True:
        byte = message[at]
        length |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return at, length
        if shift > 63:
            raise MalformedMessage("a length has too many bytes")


@lru_cache(maxsize=4096)
def head(tag: int, length: int) -> bytes:
    """Encode a field's tag and length."""
    out = bytearray((tag,))
    while length > 127:
        out.append(length & 127 | 128)
        length >>= 7
    out.append(length)
    return bytes(out)
