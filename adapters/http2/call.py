"""One call, as a handler sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from struct import Struct
from typing import Any, Protocol

from adapters.http1.budget import Budget
from adapters.http1.sweeper import NEVER
from adapters.http2 import frames
from adapters.http2.calm import CALM_PER_CALL
from adapters.http2.carrier import Carrier
from adapters.http2.codes import Code
from adapters.http2.fields import encode
from adapters.http2.frames import END_HEADERS, END_STREAM, HEADERS, ErrorCode, header_frames
from adapters.http2.head import RequestHead
from adapters.http2.inbox import ENCODINGS
from adapters.http2.limits import Limits
from adapters.http2.status import GrpcError, Metadata, encode_message, encode_metadata
from adapters.http2.stream import Stream

HEAD = encode([(b":status", b"200"), (b"content-type", b"application/grpc"), (b"grpc-accept-encoding", ENCODINGS)])
OK_TRAILERS = encode([(b"grpc-status", b"0")])
ONE_WRITE = 64 * 1024
"""Bytes of a message above which copying it beside its head costs more than another write."""

CLIENT_FAULTS = frozenset({ErrorCode.PROTOCOL_ERROR, ErrorCode.FLOW_CONTROL_ERROR, ErrorCode.STREAM_CLOSED})


def _frame_head(kind: int, flags: int, block: bytes) -> bytes:
    return len(block).to_bytes(3, "big") + bytes([kind, flags])


UNARY_HEAD = Struct(f">5sI{len(HEAD)}sHBBBIBI")
"""A HEADERS frame, the head of a DATA frame, and the prefix of a message."""
UNARY_TAIL = Struct(f">5sI{len(OK_TRAILERS)}s")
HEAD_FRAME = _frame_head(HEADERS, END_HEADERS, HEAD)
TAIL_FRAME = _frame_head(HEADERS, END_HEADERS | END_STREAM, OK_TRAILERS)


class CallServer(Protocol):
    """The server as its calls see it."""

    draining: bool

    @property
    def limits(self) -> Limits: ...

    @property
    def budget(self) -> Budget: ...

    def cancel(self, task: asyncio.Task[None]) -> None:
        """End a handler."""


class Accepting(Carrier, Protocol):
    """The server's connection as its calls see it."""

    peer: str
    message_timeout: float

    @property
    def server(self) -> CallServer: ...

    def peer_certificate(self) -> Mapping[str, Any] | None:
        """The certificate that TLS has checked; None without one."""

    def charge_reset(self) -> None:
        """Count a reset of which the client is the cause. Raises `Violation` when there are too many."""


class Call(Stream):
    """Read what the client sends, answer with `reply`, or `write` any number of times and return; or `fail`.

    `path` is as it was sent, `/package.Service/Method`. `metadata` leaves out what HTTP/2 and gRPC use themselves;
    repeated names are joined with a comma, and `-bin` values are as they came (`status.binary_value`).
    `initial_metadata` may be set before the first write. When the client cancels, or its deadline passes, the
    handler's task is cancelled.
    """

    __slots__ = (
        "_awaited", "_begun_at", "_ends", "_head_sent", "_message_due", "_overruled", "connection", "ended",
        "initial_metadata", "metadata", "path", "task",
    )  # fmt: skip
    connection: Accepting

    def __init__(self, connection: Accepting, stream_id: int, head: RequestHead) -> None:
        super().__init__(connection, stream_id)
        self.path = head.path
        self.metadata: Mapping[str, str] = head.metadata
        self.encoding = head.encoding
        self.budget = connection.server.budget
        self.initial_metadata: Metadata = ()
        self.ended = False  # how it ends has been said, if not yet sent
        self.task: asyncio.Task[None] | None = None
        self._head_sent = False
        self._overruled = False  # it was ended over the handler's head
        self._awaited = False  # exactly one message is waited for
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
        """The client's certificate, verified, as `ssl.SSLSocket.getpeercert` gives it; None without one."""
        return self.connection.peer_certificate()

    @property
    def deadline(self) -> float | None:
        """When the client stops waiting, in loop time; None when it does not."""
        return None if self._ends == NEVER else self._ends

    # ── what the client sends ─────────────────────────────────────────────────────────────────────────

    async def unary(self) -> bytes:
        """The only message. Raises `GrpcError` when there is none, or another."""
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

    # ── what it gets ──────────────────────────────────────────────────────────────────────────────────

    def reply(self, message: bytes, trailers: Metadata = ()) -> None:
        """The whole answer: one message, and OK. One write, where it fits."""
        outlet = self.outlet
        size = len(message) + 5
        if (
            size > self.window or size > outlet.window or size > outlet.max_frame or size > ONE_WRITE
            or outlet.paused or self.initial_metadata or self._head_sent or self.closed
        ):  # fmt: skip
            self._send(message)
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
        """One message of several; waits while the client does not take them. Raises `GrpcError` once it has left."""
        self._send(message)
        await self.room()

    def _send(self, message: bytes) -> None:
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
        """The end of a call that went well, behind what was written."""
        block = OK_TRAILERS + encode(encode_metadata(trailers)) if trailers else OK_TRAILERS
        if self._end():
            self._send_head()
            self._end_with(block)

    def fail(self, code: int, message: str, trailers: Metadata = ()) -> None:
        """The end of a call that did not, behind what was written."""
        block = encode([(b"grpc-status", b"%d" % code), (b"grpc-message", encode_message(message))])
        if trailers:
            block += encode(encode_metadata(trailers))
        if not self._head_sent:
            block = HEAD + encode(encode_metadata(self.initial_metadata)) + block
        if self._end():
            self._head_sent = True
            self._end_with(block)

    def _end(self) -> bool:
        """Whether there is anybody to be told. A handler cannot know that the call was ended over its head."""
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
        """A client that is still sending is told that it need not."""
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
        """End it over the handler's head."""
        if not self.ended:
            self.fail(error.code, error.message, error.trailers)
            self._overruled = True
        self._cancel()

    def break_off(self, code: ErrorCode) -> None:
        """See `Stream`. A client that makes the server reset its streams pays as for resets of its own: otherwise it
        could begin calls without an end, each of which the reset takes off its count (CVE-2025-8671)."""
        blamed = not self.closed and code in CLIENT_FAULTS
        super().break_off(code)
        if blamed:
            self.connection.charge_reset()

    def _cancel(self) -> None:
        if self.task is not None:
            self.connection.server.cancel(self.task)

    def check(self, now: float) -> float:
        """See `Stream`. A message that drips in gets the time that its bytes take at the least rate."""
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
                self.refuse(GrpcError(Code.DEADLINE_EXCEEDED, "The request message came too slowly."))
        return min(due, self._ends, self._message_due)

    def _next_look(self, now: float) -> float:
        if not self._awaited and not self.inbox.halfway:
            return NEVER
        if self._reader is None:
            return now + self.connection.message_timeout  # the handler lets it wait
        limits = self.connection.server.limits
        return self._begun_at + limits.message_timeout + self.inbox.arrived / limits.min_message_rate

    def _expire(self) -> None:
        """The client has stopped waiting."""
        if self.ended or self._out:
            self.break_off(ErrorCode.CANCEL)
        else:
            self.refuse(GrpcError(Code.DEADLINE_EXCEEDED, "The call's deadline has passed."))
