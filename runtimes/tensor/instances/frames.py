"""Tensors as packets to a process and back; large tensors are in memory that both sides share.

    packet  = prefix, header (a msgpack list of name, dtype, shape and bytes of each tensor), payload
    payload = the tensors' bytes, each at a multiple of 64; BYTES as a msgpack list of binaries, and large ones in the
              protocol's binary form, to which a model's process adds before it where each row ends; deferred inputs
              as the number of their parts, the shape of each part, and the parts

Nothing is pickled, and the bytes of a batch's members are written one after the other, so that they arrive joined.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from runtimes.tensor.deferred_input import composed, is_deferred
from runtimes.tensor.interfaces import Array, InvalidRow, Tensors
from runtimes.tensor.texts import Texts, as_array, is_texts
from runtimes.tensor.texts import packed as packed_texts

_STEP = 1024 * 1024


class Arena:
    """A file without a name that grows on demand and is reused. The other side opens it by `fd`.

    One packet at a time: data read from it becomes invalid when the writer writes again.
    """

    def __init__(self, fd: int | None = None) -> None:
        self.fd = os.memfd_create("headrace-tensors") if fd is None else fd
        self._bytes: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        self._lock = threading.Lock()  # a large write is on a thread, and the process may die meanwhile

    def write(self, pieces: Sequence[npt.NDArray[np.generic] | bytes], size: int) -> None:
        """Put pieces one after the other, growing first. Raises OSError when there is no memory for it."""
        with self._lock:
            if size > len(self._bytes):
                if self.fd < 0:
                    raise OSError(errno.EBADF, "it is closed")
                # Allocated now: a page that the system cannot provide at its first use ends the process.
                os.posix_fallocate(self.fd, 0, size + -size % _STEP)
                self._open()
            offset = 0
            for piece in pieces:
                flat = np.frombuffer(piece, np.uint8) if isinstance(piece, bytes) else piece.reshape(-1).view(np.uint8)
                self._bytes[offset : offset + flat.size] = flat
                offset += flat.size

    def read(self, size: int) -> memoryview:
        """The first `size` bytes, writable."""
        if size > len(self._bytes):
            self._open()
        return self._bytes[:size].data

    def copy(self, size: int) -> bytes:
        """The first `size` bytes. Does not hold Python's lock for as long as it takes."""
        with self._lock:
            return os.pread(self.fd, size, 0)

    def _open(self) -> None:
        # Views of the old mapping keep it for as long as they live.
        self._bytes = np.frombuffer(mmap.mmap(self.fd, os.fstat(self.fd).st_size), np.uint8)

    def close(self) -> None:
        with self._lock:
            os.close(self.fd)
            self.fd = -1
            self._bytes = np.empty(0, np.uint8)


LOAD, COMPLETE, INFER, STREAM, GO_ON, STOP = range(1, 7)
"""Kinds of packets to a process."""
LOADED, COMPLETED, REFUSED, OUTPUTS, ROW_ERRORS, FAILED, RESPONSE, STREAMED = range(11, 19)
"""Kinds of packets from a process. ROW_ERRORS precede their OUTPUTS."""
_ANSWERS: Final = frozenset({OUTPUTS, RESPONSE})

INLINE: Final = 64 * 1024
"""Bytes of header and payload that fit in the packet itself."""
MAX_PACKET: Final = INLINE + 1024
ALIGN: Final = 64
_PREFIX: Final = struct.Struct("<BBHIQQ")
_PAD: Final = bytes(ALIGN)
MAX_CACHED: Final = 1024
"""Cached descriptions of tensors."""
_headers: dict[tuple[object, ...], bytes] = {}
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[str, str, tuple[int, ...], int]]).decode
_decode_items = msgspec.msgpack.Decoder(list[bytes]).decode

TEXTS: Final = "texts"
ROWS: Final = "rows of texts"
"""Dtypes in a header for BYTES in binary form, without and with the ends of rows."""
DEFERRED: Final = "deferred "
"""Begins the dtype in a header of an input that the model's process pads or converts."""
_INT64: Final = np.dtype(np.int64)
Piece = Array | bytes


class FrameTooLarge(Exception):
    """The description of the tensors does not fit a packet, or there is no memory for the tensors."""


class Frame(NamedTuple):
    """A packet before it is assembled."""

    kind: int
    number: int
    header: bytes
    pieces: list[Piece]
    size: int
    """Bytes of the payload."""
    outputs: int = 0
    """See `Batch.outputs`."""


class Packet(NamedTuple):
    """A received packet."""

    kind: int
    number: int
    """The number of a batch's rows, or the number of a stream."""
    header: bytes
    payload: memoryview
    shared: bool
    """Whether the payload is in the arena, which the next packet may overwrite."""
    outputs: int = 0
    """See `Batch.outputs`."""


def tensors_frame(kind: int, number: int, members: Sequence[Tensors]) -> Frame:
    """The members, joined along the first dimension."""
    pieces: list[Piece] = []
    key: list[object] = []
    size = 0
    joined = len(members) > 1
    for name, array in members[0].items():
        dtype = array.dtype
        if dtype.hasobject or is_deferred(array):
            return _with_texts(kind, number, members)
        shape = array.shape
        before = size
        if joined:
            arrays = [member[name] for member in members]
            shape = (sum([len(one) for one in arrays]), *shape[1:])
            for one in arrays:
                if is_deferred(one):
                    return _with_texts(kind, number, members)
                pieces.append(one if one.flags.c_contiguous else np.ascontiguousarray(one))
                size += one.nbytes
        else:
            pieces.append(array if array.flags.c_contiguous else np.ascontiguousarray(array))
            size += array.nbytes
        key += (name, dtype.str, shape, size - before)
        if over := -size % ALIGN:
            pieces.append(_PAD[:over])
            size += over
    return Frame(kind, number, _header(tuple(key)), pieces, size)


def _header(key: tuple[object, ...]) -> bytes:
    """The header of tensors. Cached: a model's batches have few shapes."""
    if (header := _headers.get(key)) is None:
        header = _encode([key[at : at + 4] for at in range(0, len(key), 4)])
        if len(_headers) >= MAX_CACHED:
            _headers.clear()
        _headers[key] = header
    return header


def _with_texts(kind: int, number: int, members: Sequence[Tensors]) -> Frame:
    """The header of tensors of which some are BYTES or deferred: their lengths vary."""
    fields: list[tuple[str, str, tuple[int, ...], int]] = []
    pieces: list[Piece] = []
    size = 0
    for name in members[0]:
        dtype, shape, parts = _parts([member[name] for member in members], large=kind in _ANSWERS)
        nbytes = sum([len(part) if isinstance(part, bytes) else part.nbytes for part in parts])
        fields.append((name, dtype, shape, nbytes))
        pieces += parts
        size += nbytes
        if over := -size % ALIGN:
            pieces.append(_PAD[:over])
            size += over
    return Frame(kind, number, _encode(fields), pieces, size)


def _parts(arrays: Sequence[Array], *, large: bool) -> tuple[str, tuple[int, ...], list[Piece]]:
    """One tensor of all members: dtype, shape and bytes. `large` ones may take their binary form."""
    shape = arrays[0].shape
    if len(arrays) > 1:
        shape = (sum([len(one) for one in arrays]), *shape[1:])
    if any(is_deferred(one) for one in arrays):
        return _deferred(arrays, shape)
    if any(is_texts(one) for one in arrays):
        return TEXTS, shape, [np.frombuffer(_packed(one).data, np.uint8) for one in arrays]
    if not arrays[0].dtype.hasobject:
        return arrays[0].dtype.str, shape, [np.ascontiguousarray(one) for one in arrays]
    array = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
    encoded = _encode(array.ravel().tolist())
    if not large or len(encoded) < INLINE:
        return array.dtype.str, shape, [encoded]
    texts = packed_texts(array)
    data = np.frombuffer(texts.data, np.uint8)
    return (TEXTS, shape, [data]) if texts.ends is None else (ROWS, shape, [texts.ends, data])


def _deferred(arrays: Sequence[Array], shape: tuple[int, ...]) -> tuple[str, tuple[int, ...], list[Piece]]:
    """The parts of a tensor with deferred members: the model's process composes the array."""
    contents = [one.content if is_deferred(one) else one for one in arrays]
    shapes = [length for content in contents for length in content.shape]
    dtype = arrays[0].dtype
    pieces: list[Piece] = [np.array([len(contents), *shapes], _INT64)]
    if dtype.hasobject:
        pieces += [np.frombuffer(_packed(content).data, np.uint8) for content in contents]
    else:
        pieces += [np.ascontiguousarray(content) for content in contents]
    return DEFERRED + dtype.str, shape, pieces


def _packed(array: Array) -> Texts:
    return array if is_texts(array) else packed_texts(array)


def blob_frame(kind: int, number: int, blob: bytes) -> Frame:
    """Plain bytes."""
    return Frame(kind, number, b"", [blob], len(blob))


class _RowErrors(NamedTuple):
    model: dict[int, str]
    caller: dict[int, str]


_decode_errors = msgspec.msgpack.Decoder(_RowErrors).decode


def encoded_errors(errors: Mapping[int, str]) -> bytes:
    """The errors of rows, for a packet of ROW_ERRORS."""
    parts = _RowErrors({}, {})
    for row, error in errors.items():
        parts[isinstance(error, InvalidRow)][row] = error.encode(errors="replace").decode()
    return msgspec.msgpack.encode(parts)


def decoded_errors(payload: memoryview) -> dict[int, str]:
    """The errors of rows, of a packet of ROW_ERRORS."""
    parts = _decode_errors(payload)
    return {**parts.model, **{row: InvalidRow(error) for row, error in parts.caller.items()}}


def signal(kind: int, number: int) -> bytes:
    """A packet with a kind only."""
    return _PREFIX.pack(kind, 0, 0, 0, number, 0)


def packed(frame: Frame, arena: Arena) -> bytes:
    """The packet; data that is too large for a packet is written to the arena. Raises `FrameTooLarge`."""
    kind, number, header, pieces, size, outputs = frame
    start = _PREFIX.size + len(header)
    if start + size <= INLINE:
        prefix = _PREFIX.pack(kind, 0, outputs, len(header), number, size)
        whole: list[Any] = [prefix, header, _PAD[: -start % ALIGN], *pieces]
        return b"".join(whole)
    if start > INLINE:
        raise FrameTooLarge("more tensors, or longer names, than one packet describes")
    try:
        arena.write(pieces, size)
    except OSError as error:
        raise FrameTooLarge(f"no memory for {size} bytes of tensors ({error.strerror})") from None
    return _PREFIX.pack(kind, 1, outputs, len(header), number, size) + header


def parse(data: bytes | bytearray, arena: Arena) -> Packet:
    """The parts of a received packet."""
    kind, in_arena, outputs, header, number, size = _PREFIX.unpack_from(data)
    start = _PREFIX.size + header
    if in_arena:
        payload = arena.read(size)
    else:
        begin = start + -start % ALIGN
        payload = memoryview(data)[begin : begin + size]
    return Packet(kind, number, bytes(data[_PREFIX.size : start]), payload, bool(in_arena), outputs)


_Place = tuple[str, np.dtype[Any] | str, tuple[int, ...], int, int]
_layouts: dict[bytes, list[_Place]] = {}


def owned(packet: Packet, arena: Arena) -> Packet:
    """The packet with a separate payload."""
    if not packet.shared:
        return packet
    return packet._replace(payload=memoryview(arena.copy(len(packet.payload))), shared=False)


def tensors_of(packet: Packet) -> dict[str, Array]:
    """The tensors of a packet, as views of its payload."""
    layout = _layouts.get(packet.header)
    if layout is None:
        layout = _layout(packet.header)
    payload = packet.payload
    tensors: dict[str, Array] = {}
    for name, dtype, shape, offset, nbytes in layout:
        if isinstance(dtype, str):
            tensors[name] = _described(dtype, shape, payload[offset : offset + nbytes])
        elif dtype.hasobject:
            items = _decode_items(payload[offset : offset + nbytes])
            array: Array = np.empty(len(items), dtype=object)
            array[:] = items
            tensors[name] = array.reshape(shape)
        else:
            tensors[name] = np.ndarray(shape, dtype, payload, offset)
    return tensors


def _described(dtype: str, shape: tuple[int, ...], data: memoryview) -> Array:
    """The description of a tensor whose data has more than its elements."""
    if dtype == TEXTS:
        return as_array(Texts(data, shape))
    if dtype == ROWS:
        size = shape[0] * 8
        return as_array(Texts(data[size:], shape, np.frombuffer(data[:size], np.int64)))
    return _composed(np.dtype(dtype.removeprefix(DEFERRED)), shape, data)


def _composed(dtype: np.dtype[Any], shape: tuple[int, ...], data: memoryview) -> Array:
    """The array of deferred inputs. Slow: only a model's process receives them."""
    (count,) = np.frombuffer(data, _INT64, 1)
    shapes = np.frombuffer(data, _INT64, count * len(shape), 8).reshape(count, len(shape))
    data = data[8 + shapes.nbytes :]
    if dtype.hasobject:
        elements = Texts(data, (int(shapes.prod(1).sum()),)).array()
    else:
        elements = np.frombuffer(data, np.uint8 if dtype == np.bool_ else dtype)
    ends = shapes.prod(1).cumsum()
    parts = np.split(elements, ends[:-1])
    return composed([part.reshape(own) for part, own in zip(parts, shapes, strict=True)], dtype, shape)


def _layout(header: bytes) -> list[_Place]:
    """The offset of each tensor. Cached: a model's batches have few shapes. BYTES vary in length."""
    layout: list[_Place] = []
    offset = 0
    cacheable = True
    for name, dtype, shape, nbytes in _decode(header):
        described = dtype in (TEXTS, ROWS) or dtype.startswith(DEFERRED)
        layout.append((name, dtype if described else np.dtype(dtype), shape, offset, nbytes))
        offset += nbytes + -nbytes % ALIGN
        cacheable = cacheable and not described and dtype != "|O"
    if cacheable:
        if len(_layouts) >= MAX_CACHED:
            _layouts.clear()
        _layouts[header] = layout
    return layout
