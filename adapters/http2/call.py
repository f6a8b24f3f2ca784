"""One call of the server, as a handler uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Any, Protocol

from adapters.http1.budget import Budget
from adapters.http1.sweeper import NEVER
from adapters.http2 import frames
from adapters.http2.fields import encode
from adapters.http2.frames import CALM_PER_CALL, END_HEADERS, END_STREAM, HEADERS, ErrorCode, header_frames
from adapters.http2.head import RequestHead
from adapters.http2.inbox import ENCODINGS
from adapters.http2.status import Code, GrpcError, Metadata, encode_message, encode_metadata
from adapters.http2.stream import Carrier, Http2Stream

HEAD = encode([(b":status", b"200"), (b"content-type", b"application/grpc"), (b"grpc-accept-encoding", ENCODINGS)])
OK_TRAILERS = encode([(b"grpc-status", b"0")])
ONE_WRITE = 64 * 1024
"""Bytes of a message above which a copy next to its head costs more than a second write."""

CLIENT_FAULTS = frozenset({ErrorCode.PROTOCOL_ERROR, ErrorCode.FLOW_CONTROL_ERROR, ErrorCode.STREAM_CLOSED})


def _frame_head(kind: int, flags: int, block: bytes) -> bytes:
    return len(block).to_bytes(3, "big") + bytes([kind, flags])


UNARY_HEAD = Struct(f">5sI{len(HEAD)}sHBBBIBI")
"""A HEADERS frame, the head of a DATA frame, and the prefix of a message."""
UNARY_TAIL = Struct(f">5sI{len(OK_TRAILERS)}s")
HEAD_FRAME = _frame_head(HEADERS, END_HEADERS, HEAD)
TAIL_FRAME = _frame_head(HEADERS, END_HEADERS | END_STREAM, OK_TRAILERS)


class CallServer(Protocol):
    """The server, as its calls use it."""

    draining: bool

    @property
    def limits(self) -> Limits: ...

    @property
    def budget(self) -> Budget: ...

    def cancel(self, task: asyncio.Task[None]) -> None:
        """Cancel the task of a handler."""


class CallConnection(Carrier, Protocol):
    """The server's connection, as its calls use it."""

    peer: str
    message_timeout: float

    @property
    def server(self) -> CallServer: ...

    def peer_certificate(self) -> Mapping[str, Any] | None:
        """The client's certificate, verified by TLS; None without a certificate."""

    def charge_reset(self) -> None:
        """Count a server reset that the client has caused. Raises `Violation` above the limit."""


class GrpcCall(Http2Stream):
    """A call: a handler reads the messages and answers with `reply`, with any number of `write`, or with `fail`.

    `path` is the path as received, `/package.Service/Method`. `metadata` excludes the fields of HTTP/2 and gRPC;
    repeated names are joined with a comma, and `-bin` values are not decoded (`status.binary_value` decodes them).
    A handler may set `initial_metadata` before the first write. The handler's task is cancelled when the client
    cancels or the deadline passes.
    """

    __slots__ = (
        "_awaited", "_begun_at", "_ends", "_head_sent", "_message_due", "_overruled", "connection", "ended",
        "initial_metadata", "metadata", "path", "task",
    )  # fmt: skip
    connection: CallConnection

    def __init__(self, connection: CallConnection, stream_id: int, head: RequestHead) -> None:
        super().__init__(connection, stream_id)
        self.path = head.path
        self.metadata: Mapping[str, str] = head.metadata
        self.encoding = head.encoding
        self.budget = connection.server.budget
        self.initial_metadata: Metadata = ()
        self.ended = False  # the end is decided, though perhaps not sent yet
        self.task: asyncio.Task[None] | None = None
        self._head_sent = False
        self._overruled = False  # the connection, not the handler, has ended the call
        self._awaited = False  # the handler waits for exactly one message
        self._begun_at = 0.0
        self._message_due = NEVER
        self._ends = NEVER
        if head.timeout is not None:
            self._ends = connection.loop.time() + head.timeout
            connection.look_at(self._ends)

    @property
    def peer(self) -> str:
        """The client's address, or `unix`."""
        return self.connection.peer

    @property
    def peer_certificate(self) -> Mapping[str, Any] | None:
        """The client's verified certificate, in the form of `ssl.SSLSocket.getpeercert`; None without a certificate."""
        return self.connection.peer_certificate()

    @property
    def deadline(self) -> float | None:
        """The client's deadline in loop time; None without a deadline."""
        return None if self._ends == NEVER else self._ends

    # ── messages of the client ────────────────────────────────────────────────────────────────────────

    async def unary(self) -> bytes:
        """Read the only message. Raises `GrpcError` for no message or several messages."""
        messages = self.inbox.messages
        if not messages or not self.received_all:
            self._awaited = True
            self._begin_message(self.connection.loop.time())
        message = await self.read()
        if message is None:
            raise GrpcError(Code.UNIMPLEMENTED, "The call has no message, and must have one.")
        if (messages or not self.received_all) and await self.read() is not None:
            raise GrpcError(Code.UNIMPLEMENTED, "The call has several messages, and must have one.")
        self._message_due = NEVER
        return message

    def begun(self) -> None:
        if not self._awaited:
            self._begin_message(self.connection.loop.time())

    def _begin_message(self, now: float) -> None:
        self._begun_at = now
        self._message_due = now + self.connection.message_timeout
        self.connection.look_at(self._message_due)

    # ── the response ──────────────────────────────────────────────────────────────────────────────────

    def reply(self, message: bytes, trailers: Metadata = ()) -> None:
        """Send the whole response: one message and status OK; in one write if it fits."""
        outlet = self.outlet
        size = len(message) + 5
        if (
            size > self.window or size > outlet.window or size > outlet.max_frame or size > ONE_WRITE
            or outlet.paused or self.initial_metadata or self._head_sent or self.closed
        ):  # fmt: skip
            self.send(message)
            self.finish(trailers)
            return
        if not self._end():
            return
        outlet.window -= size
        head = UNARY_HEAD.pack(
            HEAD_FRAME, self.id, HEAD, size >> 8, size & 0xFF, 0, 0, self.id, 0, size - 5
        )  # fmt: skip
        if trailers:
            tail = header_frames(self.id, OK_TRAILERS + encode(encode_metadata(trailers)), END_STREAM, outlet.max_frame)
        else:
            tail = UNARY_TAIL.pack(TAIL_FRAME, self.id, OK_TRAILERS)
        outlet.write(b"".join((head, message, tail)))
        self.sent()

    async def write(self, message: bytes) -> None:
        """Send one of several messages; waits while the client does not read. Raises `GrpcError` after a disconnect."""
        self.send(message)
        await self.room()

    def send(self, message: bytes) -> None:
        """Send one of several messages without a wait: `room` waits until the client has read it."""
        if self.ended and not self._overruled:
            raise RuntimeError("the call has ended")
        if not self.closed and not self.ended:
            self._send_head()
            self.put(message)

    def _send_head(self) -> None:
        if not self._head_sent:
            block = HEAD + encode(encode_metadata(self.initial_metadata))
            self._head_sent = True
            self.outlet.write(header_frames(self.id, block, 0, self.outlet.max_frame))

    def finish(self, trailers: Metadata = ()) -> None:
        """End the call with status OK after the written messages."""
        block = OK_TRAILERS + encode(encode_metadata(trailers)) if trailers else OK_TRAILERS
        if self._end():
            self._send_head()
            self._end_with(block)

    def fail(self, code: int, message: str, trailers: Metadata = ()) -> None:
        """End the call with an error status after the written messages."""
        block = encode([(b"grpc-status", b"%d" % code), (b"grpc-message", encode_message(message))])
        if trailers:
            block += encode(encode_metadata(trailers))
        if not self._head_sent:
            block = HEAD + encode(encode_metadata(self.initial_metadata)) + block
        if self._end():
            self._head_sent = True
            self._end_with(block)

    def _end(self) -> bool:
        """Mark the call as ended. Returns whether the client must still receive the end.

        If the connection has already ended the call, the handler's own end is ignored.
        """
        if self.ended and not self._overruled:
            raise RuntimeError("the call has ended")
        if self.ended or self.closed:
            self.ended = True
            return False
        self.ended = True
        return True

    def _end_with(self, block: bytes) -> None:
        self.end(header_frames(self.id, block, END_STREAM, self.outlet.max_frame))

    # ── ends ──────────────────────────────────────────────────────────────────────────────────────────

    def sent(self) -> None:
        """Close the call after its last frame. A client that is still sending receives RST_STREAM with NO_ERROR."""
        self.sent_all = True
        self.connection.forgive(CALM_PER_CALL)
        if not self.received_all:
            self.outlet.write(frames.rst_stream(self.id, ErrorCode.NO_ERROR))
        self.close(None)

    def close(self, error: Exception | None) -> None:
        super().close(error)
        self.discard()
        if error is not None:
            self._cancel()

    def refuse(self, error: GrpcError) -> None:
        """End the call with an error and cancel the handler."""
        if not self.ended:
            self.fail(error.code, error.message, error.trailers)
            self._overruled = True
        self._cancel()

    def break_off(self, code: ErrorCode) -> None:
        """Reset the stream, and charge the client if the client has caused the reset.

        Without the charge a client could begin calls without limit: each reset removes a call from its count
        (CVE-2025-8671).
        """
        blamed = not self.closed and code in CLIENT_FAULTS
        super().break_off(code)
        if blamed:
            self.connection.charge_reset()

    def _cancel(self) -> None:
        if self.task is not None:
            self.connection.server.cancel(self.task)

    def check(self, now: float) -> float:
        """Check the deadlines; see `Stream`. A slow message has the time that its bytes take at `min_message_rate`."""
        due = super().check(now)
        if self.closed:
            return NEVER
        if self._ends <= now:
            self._expire()
            return NEVER
        if self._message_due <= now:
            self._message_due = self._next_look(now)
            if self._message_due <= now:
                self._message_due = NEVER
                self.refuse(GrpcError(Code.DEADLINE_EXCEEDED, "The request message arrived too slowly."))
        return min(due, self._ends, self._message_due)

    def _next_look(self, now: float) -> float:
        if not self._awaited and not self.inbox.halfway:
            return NEVER
        if self._reader is None:
            return now + self.connection.message_timeout  # the handler does not read at present
        limits = self.connection.server.limits
        return self._begun_at + limits.message_timeout + self.inbox.arrived / limits.min_message_rate

    def _expire(self) -> None:
        """End the call after the client's deadline."""
        if self.ended or self._out:
            self.break_off(ErrorCode.CANCEL)
        else:
            self.refuse(GrpcError(Code.DEADLINE_EXCEEDED, "The call's deadline has passed."))


# Limits of a gRPC server and of each accepted connection.

KiB = 1024
MiB = 1024 * KiB
GiB = 1024 * MiB


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a server and of each connection: sizes in bytes, times in seconds.

    A message that has begun, or that the handler must receive, has `message_timeout` plus the time that its bytes take
    at `min_message_rate`. For all calls of a connection, `max_held` limits the received but unread bytes, and
    `max_unsent` the response bytes that the client has not read. `max_held_by_all` limits the held bytes of all
    connections, unless the server has a shared budget. A silent connection with calls is pinged after `ping_interval`
    and dropped after another interval; without calls it is closed after `idle_timeout`.
    """

    max_head: int = 32 * KiB
    max_message: int = 64 * MiB
    max_held: int = 256 * MiB
    max_held_by_all: int = 2 * GiB
    max_unsent: int = 64 * MiB
    max_streams: int = 1024
    max_connections: int = 10_000
    greeting_timeout: float = 10.0
    message_timeout: float = 30.0
    min_message_rate: int = 8 * KiB
    send_timeout: float = 60.0
    ping_interval: float = 60.0
    idle_timeout: float = 600.0
    lull: float = 1.0
    """Time that a drain waits for a client to receive the announcement."""
