"""Messages between the server and the process of a model that receives whole requests.

    packet  = prefix, header (msgpack), payload: the tensors' bytes, each at a multiple of 64
    payload = in the packet, or in a sealed file in memory whose descriptor accompanies the packet; before it there the
              header, if that does not fit the packet

Tensors have the protocol's binary form in both directions. Both sides may send at any time and from any thread: a
packet is one datagram.
"""

from __future__ import annotations

import array
import errno
import fcntl
import mmap
import os
import socket
import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from adapters.tensors import Data

EXECUTE, CREDIT, CANCEL, CALL_RESPONSE, REPLY = range(40, 45)
"""Kinds of packets to a process."""
EXECUTED, RESPONSE, CALL, CALL_CREDIT, CALL_CANCEL, QUERY, LOG = range(50, 57)
"""Kinds of packets from a process."""
FIRST_KIND: Final = EXECUTE

INLINE: Final = 64 * 1024
"""Bytes of a packet without a file."""
MAX_PACKET: Final = INLINE + 1024
ALIGN: Final = 64
WINDOW: Final = 8
"""The number of unread responses to one request at which the sender waits."""
_PREFIX: Final = struct.Struct("<BBHIQQ")
_IN_FILE, _ALL_IN_FILE = 1, 2
_PAD: Final = bytes(ALIGN)
_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
_pack = msgspec.msgpack.Encoder().encode

Value = str | int | float | bool


class MessageTooLarge(Exception):
    """There is no memory for the message."""


class TensorHead(msgspec.Struct, array_like=True, frozen=True):
    """A tensor without its `size` bytes."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    size: int


class InferenceFields(msgspec.Struct, array_like=True, frozen=True):
    """A request without the bytes of its inputs. `requested` has the outputs that its sender receives."""

    inputs: tuple[TensorHead, ...]
    requested: tuple[str, ...]
    id: str = ""
    correlation: int | str = 0
    flags: int = 0
    timeout: int = 0
    """Microseconds; 0 for none."""
    parameters: dict[str, Value] = {}


class InferenceHead(InferenceFields, array_like=True, frozen=True, kw_only=True):
    """One request of a batch."""

    number: int
    trace: str = ""
    """The context of the request's span as JSON, in the headers of W3C Trace Context; empty if it is not traced."""


class ResponseHead(msgspec.Struct, array_like=True, frozen=True):
    """One response. `error` is Triton's code and a message; `final`: no other follows."""

    number: int
    final: bool
    outputs: tuple[TensorHead, ...] = ()
    error: tuple[int, str] | None = None
    parameters: dict[str, Value] = {}
    empty: bool = False
    """Whether it only ends the request."""


class ExecutedHead(msgspec.Struct, array_like=True, frozen=True):
    """The end of one execution: the returned responses, and the requests to execute again."""

    responses: tuple[ResponseHead, ...] = ()
    rescheduled: tuple[int, ...] = ()


class CallHead(InferenceFields, array_like=True, frozen=True, kw_only=True):
    """A request of the model to a model of the same server."""

    model: str
    version: str
    decoupled: bool = False
    blocking: bool = False
    """Whether `execute` itself waits for the response."""
    parent: int = 0
    """The number of the request whose trace the model has passed; 0 for none."""


class Query(msgspec.Struct, array_like=True, frozen=True):
    """A query or an order to the server, which sends a `QueryReply`."""

    operation: str
    arguments: dict[str, Any] = {}


class QueryReply(msgspec.Struct, array_like=True, frozen=True):
    value: Any = None
    error: str = ""


class LogLine(msgspec.Struct, array_like=True, frozen=True):
    level: str
    text: str


class ModelMessage(NamedTuple):
    """A received packet."""

    kind: int
    number: int
    header: memoryview
    payload: memoryview

    def tensors(self, heads: Iterable[TensorHead], offset: int) -> tuple[list[memoryview], int]:
        """The bytes of the tensors that begin at `offset`, and the offset after them."""
        parts = []
        for head in heads:
            parts.append(self.payload[offset : offset + head.size])
            offset += head.size + -head.size % ALIGN
        return parts, offset


class Outgoing(NamedTuple):
    """A packet to send, and its file."""

    data: bytes
    file: int | None = None

    def send(self, to: socket.socket) -> None:
        """Raises OSError; the file stays open."""
        if self.file is None:
            to.send(self.data)
        else:
            rights = array.array("i", [self.file])
            to.sendmsg([self.data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])

    def close(self) -> None:
        if self.file is not None:
            os.close(self.file)


def payload_size(sizes: Iterable[int]) -> int:
    """The bytes of a payload with tensors of these sizes."""
    return sum([size + -size % ALIGN for size in sizes])


def _encode(header: object) -> bytes:
    """A header. A model's texts may hold what is no Unicode, such as names of files: it becomes question marks."""
    try:
        return _pack(header)
    except UnicodeEncodeError:
        return _pack(_cleaned(msgspec.to_builtins(header)))


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_cleaned(key): _cleaned(item) for key, item in value.items()}
    return [_cleaned(item) for item in value] if isinstance(value, list | tuple) else value


def packed(kind: int, number: int, header: object, tensors: Sequence[Data] = ()) -> Outgoing:
    """The packet for a message. Raises `MessageTooLarge`."""
    encoded = _encode(header) if header is not None else b""
    size = payload_size([len(data) for data in tensors])
    start = _PREFIX.size + len(encoded)
    if start > INLINE:
        whole = payload_size([len(encoded)]) + size
        prefix = _PREFIX.pack(kind, _ALL_IN_FILE, 0, len(encoded), number, whole)
        return Outgoing(prefix, _file([encoded, *tensors], whole))
    in_file = start + size > INLINE
    prefix = _PREFIX.pack(kind, _IN_FILE if in_file else 0, 0, len(encoded), number, size)
    if in_file:
        return Outgoing(prefix + encoded, _file(tensors, size))
    pieces: list[Data] = [prefix, encoded]
    if size:
        pieces.append(_PAD[: -start % ALIGN])
        for data in tensors:
            pieces += (data, _PAD[: -len(data) % ALIGN])
    return Outgoing(b"".join(pieces))


def _file(tensors: Sequence[Data], size: int) -> int:
    file = os.memfd_create("headrace-request", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    try:
        # Allocated now: a page that the system cannot provide at its first use ends the process.
        os.posix_fallocate(file, 0, size)
        offset = 0
        for data in tensors:
            view = memoryview(data).cast("B") if data else memoryview(b"")
            written = 0
            while written < len(view):
                written += os.pwrite(file, view[written:], offset + written)
            offset += len(view) + -len(view) % ALIGN
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
    except OSError as error:
        os.close(file)
        raise MessageTooLarge(f"no memory for {size} bytes of tensors ({error.strerror})") from None
    return file


def received(data: bytes | bytearray, files: Sequence[int]) -> ModelMessage:
    """The parts of a received packet, whose file is closed. Raises OSError for a file that its sender could shorten."""
    kind, in_file, _, length, number, size = _PREFIX.unpack_from(data)
    view = memoryview(data)
    end = _PREFIX.size + length
    payload = view[end + -end % ALIGN :][:size] if not in_file else view[:0]
    try:
        if in_file:
            if not files:
                raise OSError(errno.EBADF, "the file of a message is missing")
            if fcntl.fcntl(files[0], fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK == 0 or os.fstat(files[0]).st_size < size:
                raise OSError(errno.EPERM, "the file of a message is not sealed")
            payload = memoryview(mmap.mmap(files[0], size))
    finally:
        for file in files:
            os.close(file)
    if in_file == _ALL_IN_FILE:
        return ModelMessage(kind, number, payload[:length], payload[payload_size([length]) :])
    return ModelMessage(kind, number, view[_PREFIX.size : end], payload)


def files_of(ancillary: Iterable[tuple[int, int, bytes]]) -> list[int]:
    """The descriptors that accompanied a packet."""
    files = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            files.frombytes(data[: len(data) - len(data) % files.itemsize])
    return list(files)


class MemberRun(msgspec.Struct, array_like=True, frozen=True):
    """One execution of a step's model. `counted`: the statistics count it as an execution."""

    step: int
    requests: int
    rows: int
    seconds: float
    failed: int = 0
    """Requests that failed."""
    counted: bool = True
