"""Assembles gRPC messages from the pieces in DATA frames."""

import zlib
from collections import deque
from struct import Struct
from typing import NamedTuple

from adapters.assembly import LARGE, Assembly
from adapters.http2.status import Code, GrpcError

PREFIX = Struct(">BI")
"""The compression flag of a message, and its length."""
PREFIX_BYTES = 5
WINDOW_BITS = {b"gzip": 16 + zlib.MAX_WBITS, b"deflate": zlib.MAX_WBITS}
ENCODINGS = b"identity,deflate,gzip"
VIEW_BYTES = 8192


SMALL_PIECE = 4096
"""Bytes below which a piece is appended to the previous piece: a separate object would need far more memory."""
MAX_CUT = 256
"""Limit on assembled, unread messages. Further bytes stay unparsed: an empty message is five bytes, but an object."""


class Compressed(NamedTuple):
    """A message that has not been inflated yet."""

    data: bytes


class Inbox:
    """Assembles received bytes into `messages`. Raises `GrpcError` for an invalid or too long message."""

    __slots__ = ("_assembly", "_have", "_need", "_pieces", "_prefix", "_squeezed", "_uncut", "limit", "messages")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.messages: deque[bytes | Compressed] = deque()
        self._assembly: Assembly | None = None  # of a large message
        self._pieces: list[bytes | bytearray | memoryview] = []
        self._uncut = bytearray()  # bytes after the first `MAX_CUT` messages
        self._have = 0
        self._need = 0  # length of the incomplete message
        self._squeezed = False
        self._prefix: bytes | None = b""  # the received part of a prefix; None after the prefix

    def feed(self, data: bytes, start: int, stop: int) -> None:
        """Add `data[start:stop]`."""
        if self._uncut:
            self._uncut += memoryview(data)[start:stop]
            return
        if stop - start >= PREFIX_BYTES and self._prefix == b"":
            # The usual case: exactly one complete message.
            flag, size = PREFIX.unpack_from(data, start)
            if flag == 0 and size == stop - start - PREFIX_BYTES and size <= self.limit:
                self.messages.append(data[start + PREFIX_BYTES : stop])
                return
        while start < stop:
            if len(self.messages) >= MAX_CUT:
                self._uncut += memoryview(data)[start:stop]
                return
            if self._prefix is not None:
                start = self._read_prefix(data, start, stop)
            size = min(self._need - self._have, stop - start)
            if size:
                self._add(data, start, size)
                self._have += size
                start += size
            if self._prefix is None and self._have == self._need:
                self._complete()

    def _add(self, data: bytes, start: int, size: int) -> None:
        pieces = self._pieces
        if self._assembly is not None:
            self._assembly.add(memoryview(data)[start : start + size])
        elif self._have + size > LARGE:
            self._assembly = Assembly([*pieces, memoryview(data)[start : start + size]])
            pieces.clear()
        elif VIEW_BYTES < size < self._need and size * 2 > len(data):
            # A view avoids a copy before the join, but the whole of `data` stays in memory.
            pieces.append(memoryview(data)[start : start + size])
        elif size >= SMALL_PIECE or size == self._need:
            pieces.append(data[start : start + size])
        elif pieces and isinstance(pieces[-1], bytearray):
            pieces[-1] += memoryview(data)[start : start + size]
        else:
            pieces.append(bytearray(memoryview(data)[start : start + size]))

    @property
    def uncut(self) -> bool:
        """Whether `cut` may yield more messages. Call `cut` only after all assembled messages have been read."""
        return bool(self._uncut)

    def cut(self) -> None:
        """Assemble the next messages. Raises `GrpcError`."""
        data, self._uncut = bytes(self._uncut), bytearray()
        self.feed(data, 0, len(data))

    def _read_prefix(self, data: bytes, start: int, stop: int) -> int:
        assert self._prefix is not None
        end = min(start + PREFIX_BYTES - len(self._prefix), stop)
        prefix = self._prefix + data[start:end] if self._prefix else data[start:end]
        if len(prefix) < PREFIX_BYTES:
            self._prefix = prefix
            return end
        flag, self._need = PREFIX.unpack(prefix)
        if flag > 1:
            raise GrpcError(Code.INTERNAL, "A message begins with an unknown flag.")
        if self._need > self.limit:
            raise GrpcError(Code.RESOURCE_EXHAUSTED, f"A message of {self._need} bytes exceeds {self.limit} bytes.")
        self._squeezed = flag == 1
        self._prefix = None
        return end

    def _complete(self) -> None:
        pieces, self._pieces = self._pieces, []
        assembly, self._assembly = self._assembly, None
        if assembly is not None:
            whole = assembly.finish()
        else:
            whole = bytes(pieces[0]) if len(pieces) == 1 else b"".join(pieces)
        self.messages.append(Compressed(whole) if self._squeezed else whole)
        self._have = self._need = 0
        self._prefix = b""

    @property
    def halfway(self) -> bool:
        """Whether a message is incomplete."""
        return self._prefix != b""

    @property
    def missing(self) -> int:
        """Bytes still to receive of the incomplete message; 0 before its prefix has arrived."""
        return self._need - self._have if self._prefix is None else 0

    @property
    def arrived(self) -> int:
        """Received bytes of the incomplete message."""
        return self._have


def inflate(message: bytes, encoding: bytes, limit: int) -> bytes:
    """Inflate a compressed message. Raises `GrpcError` if the message is invalid or exceeds `limit` bytes."""
    bits = WINDOW_BITS.get(encoding)
    if bits is None:
        raise GrpcError(Code.INTERNAL, "A message is marked as compressed, and the call names no compression.")
    inflater = zlib.decompressobj(bits)
    try:
        data = inflater.decompress(message, limit + 1)
    except zlib.error:
        raise GrpcError(Code.INTERNAL, f"A message is not valid {encoding.decode()}.") from None
    if len(data) > limit:
        raise GrpcError(Code.RESOURCE_EXHAUSTED, f"A message exceeds {limit} bytes when it is inflated.")
    if not inflater.eof:
        raise GrpcError(Code.INTERNAL, f"A message is not valid {encoding.decode()}.")
    return data
