"""One call of the client: writes a request and reads its response."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from adapters.errors import BackendError, DeadlineError, TransportError, UpstreamSilent, UpstreamTimeout
from adapters.http1.sweeper import NEVER
from adapters.http2 import frames
from adapters.http2.fields import Field
from adapters.http2.frames import DATA, END_HEADERS, END_STREAM, HEADER, HEADERS, ErrorCode
from adapters.http2.head import BAD_IN_VALUE, NAME, is_grpc
from adapters.http2.inbox import PREFIX
from adapters.http2.status import Code, GrpcError, Reported, Unreadable, as_metadata, decode_message
from adapters.http2.stream import Carrier, Http2Stream
from adapters.types import Deadline

ONE_WRITE = 64 * 1024
"""Bytes of a message above which a copy next to its head costs more than a second write."""

CLOCKS_DIFFER = 0.01
"""Seconds by which the deadline may end earlier on the upstream's clock than on the client's."""


class Dialling(Carrier, Protocol):
    """The client's connection, as its calls use it."""

    @property
    def reads(self) -> int:
        """A counter that changes with all input from the upstream."""

    def retire(self) -> None:
        """Accept no further calls, and close after the last call."""


class Unprocessed(TransportError):
    """The upstream reports that it has not processed the call: a retry is safe."""


class Exchange(Http2Stream):
    """A call: write, `half_close` and read until None, or `cancel` at any time. Every call needs one of these ends.

    `initial_metadata` is set with the first message, `trailers` with the end. Reading raises `GrpcError` for a status
    that is not OK, and another `InferenceError` if the upstream fails or is late.
    """

    __slots__ = ("_alive", "_deadline", "_ends", "_reads_before", "_patient_until", "connection", "head", "trailers")
    connection: Dialling

    def __init__(self, connection: Dialling, stream_id: int, deadline: Deadline, now: float) -> None:
        super().__init__(connection, stream_id)
        self.head: AnswerHead | None = None
        self.trailers: Mapping[str, str] = {}
        self._deadline = deadline
        self._reads_before = connection.reads
        self._alive = 0.0  # time of the last input, or of the first wait, after the head
        self._ends = deadline.at
        self._patient_until = now + deadline.first_byte
        connection.look_at(min(self._ends, self._patient_until))

    @property
    def initial_metadata(self) -> Mapping[str, str]:
        return self.head.metadata if self.head is not None else {}

    # ── the request ────────────────────────────────────────────────────────────────────────────────────────

    def request(self, block: bytes, message: bytes) -> None:
        """Write a whole request with one message."""
        outlet = self.outlet
        size = len(message) + 5
        if (
            size > self.window or size > outlet.window or size > outlet.max_frame or size > ONE_WRITE
            or outlet.paused or len(block) > frames.DEFAULT_FRAME
        ):  # fmt: skip
            self.begin(block)
            self.put(message)
            self.half_close()
            return
        self.sent_all = True
        self.window -= size
        outlet.window -= size
        long = len(block)
        outlet.write(
            b"".join((
                HEADER.pack(long >> 8, long & 0xFF, HEADERS, END_HEADERS, self.id), block,
                HEADER.pack(size >> 8, size & 0xFF, DATA, END_STREAM, self.id), PREFIX.pack(0, size - 5), message,
            ))
        )  # fmt: skip

    def begin(self, block: bytes) -> None:
        """Write the head of a request; its messages follow."""
        self.outlet.write(frames.header_frames(self.id, block, 0, self.outlet.max_frame))

    async def write(self, message: bytes) -> None:
        """Write one message; waits while the upstream does not read. Raises the error of a failed call."""
        if self.closed and self.error is not None:
            raise self.error
        if self.ending is not None or self.closed:
            raise RuntimeError("the call has ended")
        self.put(message)
        await self.room()

    def half_close(self) -> None:
        """End the request: no message follows."""
        if self.ending is None and not self.closed:
            self.end(b"")

    # ── the response ────────────────────────────────────────────────────────────────────────────────────

    async def answer(self) -> bytes:
        """Read the only message of a successful response."""
        while not self.closed and len(self.inbox.messages) < 2:
            self._credit()
            await self._arrival()
        if self.error is not None:
            raise self.error
        message = await self.read()
        if message is None or self.inbox.messages:
            count = "no message" if message is None else "several messages"
            raise Unreadable(Code.UNIMPLEMENTED, f"The upstream answered with {count}instead of one message.")
        return message

    async def _inflated(self, message: bytes) -> bytes:
        try:
            return await super()._inflated(message)
        except GrpcError as error:
            raise Unreadable(error.code, error.message) from None

    async def _arrival(self) -> None:
        if self.head is not None:
            self._alive = self.connection.loop.time()
        await super()._arrival()

    def on_head(self, head: AnswerHead, *, last: bool) -> None:
        """Handle the head or the trailers of the response."""
        self._alive = self.connection.loop.time()
        informs = head.http_status is not None and 100 <= head.http_status < 200
        if head.malformed or (self.head is not None) is (head.http_status is not None) or (informs and last):
            self.refuse(GrpcError(Code.INTERNAL, "The upstream's answer is not valid HTTP/2."))
        elif last:
            self.head = self.head or head
            self._over(head)
        elif self.head is not None:
            self.refuse(GrpcError(Code.INTERNAL, "The upstream's answer is not valid HTTP/2."))
        elif not informs:
            self.head = head
            self.encoding = head.encoding
            self._patient_until = self._alive + self._deadline.idle
            self.connection.look_at(self._patient_until)
            if head.http_status != 200:
                self._give_up(head.error() or Unreadable(Code.UNKNOWN, "The upstream's answer makes no sense."))
            elif not head.grpc:
                self.refuse(GrpcError(Code.UNKNOWN, "The upstream's answer is not gRPC."))

    def receive(self, data: bytes, start: int, stop: int, padding: int, *, last: bool) -> None:
        """Receive DATA; see `Receiving`. DATA before the head and an end without trailers are errors."""
        self._alive = self.connection.loop.time()
        if self.head is None:
            self.refuse(GrpcError(Code.INTERNAL, "The upstream's answer is not valid HTTP/2."))
            return
        super().receive(data, start, stop, padding, last=False)
        if last and not self.closed:
            self._over(AnswerHead({}))

    def _over(self, head: AnswerHead) -> None:
        self.received_all = True
        self.trailers = head.metadata
        error: Exception | None = head.error()
        if head.status == Code.DEADLINE_EXCEEDED and self.connection.loop.time() >= self._ends - CLOCKS_DIFFER:
            error = DeadlineError("The request's deadline has passed.")
        elif error is None and self.inbox.halfway:
            error = Unreadable(Code.INTERNAL, "The upstream's answer ends inside a message.")
        if not self.sent_all:
            self.outlet.write(frames.rst_stream(self.id, ErrorCode.NO_ERROR))
        self.close(error)

    # ── ends ──────────────────────────────────────────────────────────────────────────────────────────

    def cancel(self) -> None:
        """Cancel the call and discard its messages. The stream is reset unless the response is complete."""
        self.break_off(ErrorCode.CANCEL)
        self.discard()

    def refuse(self, error: Exception) -> None:
        """Fail the call because the response is invalid or late."""
        self._give_up(Unreadable(error.code, error.message) if isinstance(error, GrpcError) else error)

    def _give_up(self, error: Exception) -> None:
        if self.error is None:
            self.error = error
        self.break_off(ErrorCode.CANCEL)

    def was_reset(self, code: int) -> None:
        """Fail the call because the upstream has reset its stream."""
        if code == ErrorCode.REFUSED_STREAM:
            self.close(Unprocessed("The upstream refused the call."))
        elif code == ErrorCode.CANCEL:
            self.close(GrpcError(Code.CANCELLED, "The upstream cancelled the call."))
        elif code == ErrorCode.ENHANCE_YOUR_CALM:
            self.close(GrpcError(Code.RESOURCE_EXHAUSTED, "The upstream refuses more requests (ENHANCE_YOUR_CALM)."))
        else:
            self.close(BackendError("The upstream aborted the call."))

    def stalled(self) -> None:
        """Fail the call because the upstream does not read the request; see `Stream`."""
        self.refuse(UpstreamTimeout("The upstream did not accept the request in time."))

    def check(self, now: float) -> float:
        """Check the deadlines; see `Stream`. A connection without any input for the whole time gets no further call."""
        due = super().check(now)
        if self.closed:
            return NEVER
        if self._ends <= now:
            self.refuse(DeadlineError("The request's deadline has passed."))
            return NEVER
        if self._patient_until <= now:
            self._patient_until = self._next_look(now)
            if self._patient_until <= now:
                self._late()
                return NEVER
        return min(due, self._ends, self._patient_until)

    def _next_look(self, now: float) -> float:
        if self._reader is None:
            return now + self._deadline.idle  # no reader waits
        return self._alive + self._deadline.idle if self.head is not None else now

    def _late(self) -> None:
        if self.connection.reads == self._reads_before:
            self.connection.retire()
        begun = self.head is not None
        failure = "stopped in the middle of its answer" if begun else "did not begin to answer in time"
        self.refuse(UpstreamSilent(f"The upstream {failure}."))


# Decodes the head and the trailers of a response from a gRPC server or from a proxy in front of it.

FROM_HTTP = {
    400: Code.INTERNAL, 401: Code.UNAUTHENTICATED, 403: Code.PERMISSION_DENIED, 404: Code.UNIMPLEMENTED,
    429: Code.UNAVAILABLE, 502: Code.UNAVAILABLE, 503: Code.UNAVAILABLE, 504: Code.UNAVAILABLE,
}  # fmt: skip
"""The code of a response without a gRPC status (gRPC's http-grpc-status-mapping)."""
OURS = frozenset(
    {b":status", b"content-type", b"grpc-status", b"grpc-message", b"grpc-encoding", b"grpc-accept-encoding"}
)


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """The head or the trailers of a response: trailers have no `http_status`, a head without trailers no `status`."""

    metadata: Mapping[str, str]
    http_status: int | None = None
    status: int | None = None
    message: str = ""
    encoding: bytes = b""
    grpc: bool = False
    """Whether the content type is gRPC's."""
    malformed: bool = False

    def error(self) -> GrpcError | None:
        """The error that the end of a response reports; None for OK."""
        if self.status == Code.OK:
            return None
        if self.status is not None:
            return Reported(self.status, self.message, as_metadata(self.metadata))
        if self.http_status not in (None, 200):
            code = FROM_HTTP.get(self.http_status or 0, Code.UNKNOWN)
            return GrpcError(code, f"The upstream answered with HTTP status {self.http_status}.")
        return GrpcError(Code.UNKNOWN, "The upstream's answer ended without a status.")


MALFORMED = AnswerHead({}, malformed=True)


def read_answer(received: Sequence[Field]) -> AnswerHead:
    """Decode a head or trailers from the fields in the order of their arrival."""
    fields: dict[bytes, bytes] = {}
    for name, value in received:
        pseudo = name == b":status" and not fields
        if (not pseudo and not NAME.fullmatch(name)) or BAD_IN_VALUE.search(value):
            return MALFORMED
        fields[name] = fields[name] + b"," + value if name in fields else value
    http_status = _number(fields.get(b":status"))
    status = _number(fields.get(b"grpc-status"))
    if (http_status is None) is (b":status" in fields):
        return MALFORMED
    return AnswerHead(
        {name.decode("latin-1"): value.decode("latin-1") for name, value in fields.items() if name not in OURS},
        http_status,
        Code.UNKNOWN if status is None and b"grpc-status" in fields else status,
        decode_message(fields.get(b"grpc-message", b"")),
        fields.get(b"grpc-encoding", b"identity"),
        is_grpc(fields.get(b"content-type", b"")),
    )


def _number(value: bytes | None) -> int | None:
    return int(value) if value is not None and value.isdigit() and len(value) <= 3 else None
