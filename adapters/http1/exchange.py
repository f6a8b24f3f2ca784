"""One connection of the client: writes a request, reads its response, and repeats.

llhttp parses the response. The native core parses what arrives whole: a response, or its head and then its chunks. From
the first bytes that the core declines, llhttp parses the rest.
"""

import asyncio
import select
from collections.abc import Callable
from typing import cast

import httptools

from adapters import native
from adapters.errors import BackendError, DeadlineError, InferenceError, TransportError, UpstreamSilent
from adapters.http1.feeding import Data, Feeding
from adapters.http1.message import Headers, Waiter, write_message
from adapters.http1.sweeper import NEVER
from adapters.types import Deadline

MAX_HEAD = 64 * 1024
HIGH_WATER = 64 * 1024
"""Unread bytes of a response above which the connection pauses reading."""
SMALL_PIECE = 1024
PIECE_COST = 64
"""Memory overhead of a small piece of a body, in bytes."""
CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
"""A head after which llhttp is at the start of a chunk."""


Forward = Callable[[bytes], bool]
"""Takes a piece of a body at once. Returns False for a piece that the caller of `take` must take."""


class Exchange(Feeding):
    """A connection to an upstream, and the response that is being read from it.

    `answered` is true after the first byte of the current response: a reused connection that breaks earlier is
    merely stale. `complete` is true after the last byte.
    """

    __slots__ = (
        "_arrived", "_chunks", "_deadline", "_error", "_fields", "_forward", "_framed", "_head_done", "_in_chunks",
        "_keep_alive", "_left", "_on_lost", "_overhead", "_parser", "_size", "answered", "complete", "deadline",
        "rested_at", "retires_at", "status",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop, on_lost: "Callable[[Exchange], None]") -> None:
        super().__init__(loop)
        self._on_lost = on_lost
        self._parser: httptools.HttpResponseParser | None = None
        self._arrived = Waiter(loop)
        self.deadline = NEVER
        self.rested_at = 0.0
        self.retires_at = NEVER
        self._error: InferenceError | None = None
        self._begin(Deadline(NEVER, NEVER, NEVER))
        self.complete = True  # no request is in progress yet

    def _begin(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self.answered = False
        self.status = 0
        self._fields: dict[bytes, bytes] = {}
        self._chunks: list[bytes] = []
        self._size = 0
        self._forward: Forward | None = None
        self._left = 0  # bytes still to receive of a body of known length
        self._overhead = 0  # bytes received since the last piece of body
        self._head_done = False
        self._in_chunks = False  # the native core has parsed everything so far, up to the start of a chunk
        self._framed = False
        self._keep_alive = False
        self.complete = False

    # ── transport and parser events ───────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is None:
            self._feed_all()
        if self._head_done and not self._framed and exc is None and self._error is None:
            self.complete = True  # the close delimits the response
        self._fail(TransportError("The upstream closed the connection before the end of its answer."))
        self._parser = None  # breaks a reference cycle: received bytes would stay until the next garbage collection
        self._on_lost(self)

    def _feed(self, data: Data) -> None:
        if self.complete:
            self._break_off()  # no request is in progress
            return
        if not self.answered and (response := native.whole_response(data)) is not None:
            self._take_response(*response)
            return
        self.answered = True
        if self._in_chunks:
            if (chunks := native.whole_chunks(data)) is not None:
                self._take_chunks(*chunks)
                return
            self._in_chunks = False
            self._llhttp().feed_data(CHUNKED_HEAD)
        # Counted before parsing: the parser buffers a field or a trailer that never ends.
        self._overhead += len(data)
        try:
            self._llhttp().feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._fail(BackendError("The upstream's answer is not valid HTTP/1.1."))
            self._break_off()
            return
        if self._overhead > MAX_HEAD and not self.complete:
            self._fail(BackendError("The upstream's response head or trailer is too large."))
            self._break_off()

    def _llhttp(self) -> httptools.HttpResponseParser:
        """The parser, which most connections never need beside the native core."""
        if self._parser is None:
            self._parser = httptools.HttpResponseParser(self)
        return self._parser

    def _take_response(
        self, status: int, fields: dict[bytes, bytes], keep_alive: bool, body: bytes, complete: bool
    ) -> None:
        """Take a response of the native core: its head, and at least a part of its body."""
        self.answered = self._head_done = self._framed = True
        self.status, self._fields, self._keep_alive = status, fields, keep_alive
        self._in_chunks = not complete
        self._take_chunks(body, complete)

    def _take_chunks(self, body: bytes, complete: bool) -> None:
        self.complete = complete
        if body:
            self.on_body(body)
        if complete or not body:
            self._arrived.wake()

    def _break_off(self) -> None:
        self._deaf = True
        self._transport.abort()

    def _body_left(self) -> int:
        return max(0, self._left)

    def on_message_begin(self) -> None:
        if self.complete:
            raise _Unsolicited

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._head_done:
            name, value = name.lower(), value.rstrip(b" \t")  # RFC 9110 5.5
            self._fields[name] = self._fields[name] + b", " + value if name in self._fields else value

    def on_headers_complete(self) -> None:
        if self._head_done:  # it was `CHUNKED_HEAD`
            return
        if self._llhttp().get_http_version() not in ("1.1", "1.0"):
            raise _WrongVersion
        self.status = self._llhttp().get_status_code()
        if self.status < 200:
            self._fields = {}
            return
        length = self._fields.get(b"content-length")
        if length is not None:
            self._left = int(length)
        self._framed = length is not None or b"transfer-encoding" in self._fields
        self._keep_alive = self._llhttp().should_keep_alive()
        self._head_done = True
        self._arrived.wake()

    def on_body(self, body: bytes) -> None:
        self._overhead = 0
        size = len(body)
        self._left -= size
        if self._forward is not None:
            if self._forward(body):
                self.deadline = min(self.loop.time() + self._deadline.idle, self._deadline.at)
                return
            self._forward = None
        self._chunks.append(body)
        self._size += size if size >= SMALL_PIECE else size + PIECE_COST
        if self._size > HIGH_WATER:
            self._pause_reading()
        self._arrived.wake()

    def on_message_complete(self) -> None:
        if self.status >= 200:
            self.complete = True
            self._arrived.wake()

    # ── one exchange ──────────────────────────────────────────────────────────────────────────────────

    def send(self, head: bytes, body: bytes, deadline: Deadline) -> None:
        """Write a request. The caller then awaits the futures of `head`."""
        self._begin(deadline)
        if self._error is None:
            write_message(self._transport, head, body)
            self._expect_head()

    def _expect_head(self) -> None:
        self.deadline = min(self.loop.time() + self._deadline.first_byte, self._deadline.at)

    def head(self) -> asyncio.Future[None] | None:
        """Return a future to await before the next call, or None if the head of the response has arrived.

        Raises `InferenceError`. Not a coroutine: every request passes here.
        """
        if self._head_done:
            self.deadline = self._deadline.at
            return None
        if self._error is not None:
            raise self._error
        return self._arrived.wait()

    @property
    def headers(self) -> Headers:
        return Headers(self._fields)

    def take(self) -> bytes | None:
        """Return the bytes of the body that arrived since the last call: empty at the end, None if none arrived."""
        self._forward = None
        if not self._chunks:
            if self.complete:
                return b""
            if self._error is not None:
                raise self._error
            return None
        self.deadline = self._deadline.at
        chunks, self._chunks = self._chunks, []
        self._size = 0
        if self._paused and self.complete:
            self._resume_reading()
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def take_whole(self, limit: int) -> bytes | None:
        """Return the body if it arrived complete, in one piece of at most `limit` bytes; otherwise None."""
        chunks = self._chunks
        if len(chunks) != 1 or len(chunks[0]) > limit or self._paused:
            return None
        self._chunks = []
        return chunks[0]

    def more(self, patience: float | None = None, forward: Forward | None = None) -> asyncio.Future[None]:
        """Return a future to await after `take` returned None.

        The wait is limited to `patience` seconds, by default to the time that the deadline allows between two pieces.
        Pieces that `forward` takes meanwhile do not end the wait.
        """
        self._forward = forward
        if self._paused:
            self._resume_reading()  # not earlier: while the client is slow, further bytes would accumulate here
        seconds = self._deadline.idle if patience is None else patience
        self.deadline = min(self.loop.time() + seconds, self._deadline.at)
        return self._arrived.wait()

    @property
    def over(self) -> bool:
        """Whether the caller has taken the whole response."""
        return self.complete and not self._chunks

    @property
    def reusable(self) -> bool:
        """Whether the response is complete and the connection can carry another request."""
        whole = self.complete and self._framed and self._keep_alive
        unread = self._paused or self._rest is not None
        return whole and not unread and not self._transport.is_closing()

    def is_quiet(self) -> bool:
        """Whether an idle connection has nothing to read: else the upstream has closed it, and the loop has not seen
        it yet."""
        socket = self._transport.get_extra_info("socket")
        if socket is None or socket.fileno() < 0:
            return not self._transport.is_closing()
        poll = select.poll()
        poll.register(socket.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
        return not poll.poll(0)

    # ── ends ──────────────────────────────────────────────────────────────────────────────────────────

    @property
    def rests(self) -> bool:
        """Whether no response is awaited."""
        return self.complete

    @property
    def retires(self) -> bool:
        """Whether the connection is too old for another request."""
        return self.retires_at != NEVER and self.loop.time() >= self.retires_at

    def rest(self, seconds: float) -> None:
        """Mark the connection idle: it closes after `seconds` unless it is used again."""
        self.rested_at = self.loop.time()
        self.deadline = min(self.rested_at + seconds, self.retires_at)

    def expire(self) -> None:
        if self.complete:
            self._transport.close()
        elif self.loop.time() >= self._deadline.at:
            self._fail(DeadlineError("The request's deadline has passed."))
        elif not self._head_done:
            self._fail(UpstreamSilent("The upstream did not begin to answer in time."))
        else:
            self._fail(UpstreamSilent("The upstream stopped in the middle of its answer."))
        self._transport.abort()

    def abort(self) -> None:
        """Drop the connection. The upstream observes a disconnect."""
        self._deaf = True
        self._rest = None
        self._chunks.clear()
        self._forward = None
        self.deadline = NEVER
        self._transport.abort()

    def cut(self) -> None:
        """Drop the connection as the loss of the upstream does: a request in progress fails."""
        self._transport.abort()

    def _fail(self, error: InferenceError) -> None:
        if self._error is None:
            self._error = error
        self._arrived.wake()


class _WrongVersion(Exception):
    """Raised for a status line of another version than HTTP/1.0 and HTTP/1.1, which llhttp accepts."""


class _Unsolicited(Exception):
    """Raised for a second response to one request. The first stays valid; the connection cannot be reused."""
