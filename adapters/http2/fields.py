"""Header blocks (HPACK, RFC 7541): a complete decoder, and an encoder that never changes the peer's table.

The package `hpack` decodes Huffman codes, which peers use only for new fields. The encoder uses no Huffman codes.
"""

from collections import deque
from collections.abc import Iterable

from hpack.exceptions import HPACKDecodingError
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from adapters.http2.frames import ErrorCode, Violation

Field = tuple[bytes, bytes]

STATIC: tuple[Field, ...] = tuple(HeaderTable.STATIC_TABLE)
TABLE_BYTES = 4096
"""Size of the table that a peer may fill: the default of the standard."""
FIELD_OVERHEAD = 32
"""Bytes that each field counts in addition to its name and value (RFC 7541 4.1)."""
STATIC_NAMES = {name: at for at, (name, _) in reversed(list(enumerate(STATIC, 1)))}
STATIC_FIELDS = {field: at for at, field in enumerate(STATIC, 1) if field[1]}


class TooManyFields(Exception):
    """The list of fields is too large. The table is still in step with the peer: only this stream fails."""


class Decoder:
    """Decodes the header blocks of one direction of a connection.

    `changes` counts the changes of the table: until the next change, equal blocks decode to equal fields.
    """

    __slots__ = ("_capacity", "_entries", "_size", "changes")

    def __init__(self) -> None:
        self._entries: deque[Field] = deque()
        self._size = 0
        self._capacity = TABLE_BYTES
        self.changes = 0

    def decode(self, block: bytes, limit: int) -> list[Field]:
        """Decode the fields of a block. Raises `Violation`, and `TooManyFields` above `limit` bytes of fields."""
        try:
            return self._decode(block, limit)
        except (IndexError, HPACKDecodingError):
            raise Violation(ErrorCode.COMPRESSION_ERROR, "a header block cannot be read") from None

    def _decode(self, block: bytes, limit: int) -> list[Field]:
        fields: list[Field] = []
        size, at, end, started = 0, 0, len(block), False
        while at < end:
            first = block[at]
            if first >= 0x80:
                index, at = _integer(block, at, 0x7F)
                field = self._look_up(index)
            elif first >= 0x40:
                field, at = self._literal(block, at, 0x3F)
                self._insert(field)
            elif first >= 0x20:
                at = self._resize(block, at, started)
                continue
            else:
                field, at = self._literal(block, at, 0x0F)
            started = True
            size += len(field[0]) + len(field[1]) + FIELD_OVERHEAD
            if size <= limit:
                fields.append(field)
        if size > limit:
            raise TooManyFields
        return fields

    def _look_up(self, index: int) -> Field:
        if 0 < index <= len(STATIC):
            return STATIC[index - 1]
        if index == 0:
            raise IndexError
        return self._entries[index - len(STATIC) - 1]

    def _literal(self, block: bytes, at: int, mask: int) -> tuple[Field, int]:
        index, at = _integer(block, at, mask)
        if index:
            name = self._look_up(index)[0]
        else:
            name, at = _string(block, at)
        value, at = _string(block, at)
        return (name, value), at

    def _insert(self, field: Field) -> None:
        self.changes += 1
        self._entries.appendleft(field)
        self._size += len(field[0]) + len(field[1]) + FIELD_OVERHEAD
        self._evict()

    def _resize(self, block: bytes, at: int, started: bool) -> int:
        capacity, at = _integer(block, at, 0x1F)
        if started or capacity > TABLE_BYTES:
            raise IndexError
        self.changes += 1
        self._capacity = capacity
        self._evict()
        return at

    def _evict(self) -> None:
        while self._size > self._capacity:
            name, value = self._entries.pop()
            self._size -= len(name) + len(value) + FIELD_OVERHEAD


def _integer(block: bytes, at: int, mask: int) -> tuple[int, int]:
    """Decode an integer with the prefix bits of `mask` (RFC 7541 5.1). Returns the integer and its end."""
    number = block[at] & mask
    at += 1
    if number < mask:
        return number, at
    for shift in (0, 7, 14, 21):
        byte = block[at]
        at += 1
        number += (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise IndexError


def _string(block: bytes, at: int) -> tuple[bytes, int]:
    squeezed = block[at] >= 0x80
    size, at = _integer(block, at, 0x7F)
    end = at + size
    if end > len(block):
        raise IndexError
    value = block[at:end]
    return (bytes(decode_huffman(value)) if squeezed else value), end


def encode(fields: Iterable[Field]) -> bytes:
    """Encode fields as static entries and unindexed literals: the block is valid for any peer at any time."""
    return b"".join([_encoded(*field) for field in fields])


def _encoded(name: bytes, value: bytes) -> bytes:
    static = STATIC_FIELDS.get((name, value))
    if static is not None:
        return bytes([0x80 | static])
    index = STATIC_NAMES.get(name)
    head = _encoded_integer(index, 0x0F) if index is not None else b"\0" + _encoded_integer(len(name), 0x7F) + name
    return head + _encoded_integer(len(value), 0x7F) + value


def _encoded_integer(number: int, mask: int) -> bytes:
    if number < mask:
        return bytes([number])
    out = bytearray([mask])
    number -= mask
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
