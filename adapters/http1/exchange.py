"""One connection of the client: a request written, its answer read, and again."""

import asyncio
from collections.abc import Callable
from typing import cast

import httptools

from adapters.errors import BackendError, DeadlineError, InferenceError, TransportError, UpstreamTimeout
from adapters.http1.feeding import Data, Feeding
from adapters.http1.message import Headers, Waiter
from adapters.http1.sweeper import NEVER
from adapters.types import Deadline

MAX_HEAD = 64 * 1024
HIGH_WATER = 64 * 1024
"""Bytes of an answer that wait to be taken, above which no more are read."""
SMALL_PIECE = 1024
PIECE_COST = 64
"""Bytes that a small piece of a body takes beside its own."""


class Exchange(Feeding):
    """A connection to an upstream, and the answer that is being read from it.

    `answered` tells whether any byte of the current answer has come (a kept-alive connection that breaks
    before is merely stale), `complete` whether all of them have.
    """

    __slots__ = (
        "_arrived", "_chunks", "_deadline", "_error", "_fields", "_framed", "_head_done", "_keep_alive", "_left",
        "_on_lost", "_overhead", "_parser", "_size", "answered", "complete", "deadline", "rested_at", "status",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop, on_lost: "Callable[[Exchange], None]") -> None:
        super().__init__(loop)
        self._on_lost = on_lost
        self._parser = httptools.HttpResponseParser(self)
        self._arrived = Waiter(loop)
        self.deadline = NEVER
        self.rested_at = 0.0
        self._error: InferenceError | None = None
        self._begin(Deadline(NEVER, NEVER, NEVER))
        self.complete = True  # nothing is under way yet

    def _begin(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self.answered = False
        self.status = 0
        self._fields: dict[bytes, bytes] = {}
        self._chunks: list[bytes] = []
        self._size = 0
        self._left = 0  # bytes to come of a body of known length
        self._overhead = 0  # bytes received since the last piece of body
        self._head_done = False
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
            self.complete = True  # the answer was delimited by the close
        self._fail(TransportError("The upstream closed the connection before the end of its answer."))
        del self._parser  # which refers to this: what has come would stay until the next collection of cycles
        self._on_lost(self)

    def _feed(self, data: Data) -> None:
        if self.complete:
            self._break_off()  # nothing was asked
            return
        self.answered = True
        # Counted before the parser sees it: a field or a trailer that never ends is buffered inside the parser.
        self._overhead += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._fail(BackendError("The upstream's answer is not valid HTTP/1.1."))
            self._break_off()
            return
        if self._overhead > MAX_HEAD and not self.complete:
            self._fail(BackendError("The upstream's response head or trailer is too large."))
            self._break_off()

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
            name = name.lower()
            self._fields[name] = self._fields[name] + b", " + value if name in self._fields else value

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        if self.status < 200:
            self._fields = {}
            return
        length = self._fields.get(b"content-length")
        if length is not None:
            self._left = int(length)
        self._framed = length is not None or b"transfer-encoding" in self._fields
        self._keep_alive = self._parser.should_keep_alive()
        self._head_done = True
        self._arrived.wake()

    def on_body(self, body: bytes) -> None:
        self._overhead = 0
        self._chunks.append(body)
        size = len(body)
        self._left -= size
        self._size += size if size >= SMALL_PIECE else size + PIECE_COST
        if self._size > HIGH_WATER:
            self._pause_reading()
        self._arrived.wake()

    def on_message_complete(self) -> None:
        if self.status >= 200:
            self.complete = True
            self._arrived.wake()

    # ── one exchange ──────────────────────────────────────────────────────────────────────────────────

    async def send(self, request: bytes, deadline: Deadline) -> None:
        """Write a request and wait for the head of its answer."""
        self._begin(deadline)
        if self._error is None:
            self._transport.write(request)
            self.deadline = min(self.loop.time() + deadline.first_byte, deadline.at)
            while not self._head_done and self._error is None:
                await self._arrived.wait()
            self.deadline = deadline.at
        if not self._head_done and self._error is not None:
            raise self._error

    @property
    def headers(self) -> Headers:
        return Headers(self._fields)

    def take(self) -> bytes | None:
        """What has arrived of the body since the last call; empty at its end, None while there is only to wait."""
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

    def more(self, patience: float | None = None) -> asyncio.Future[None]:
        """To be awaited when `take` had nothing: for `patience` seconds, by default for what the deadline allows
        between two pieces."""
        if self._paused:
            self._resume_reading()  # not before: what comes while the client is slow would wait here, too
        seconds = self._deadline.idle if patience is None else patience
        self.deadline = min(self.loop.time() + seconds, self._deadline.at)
        return self._arrived.wait()

    @property
    def over(self) -> bool:
        """Whether all of the answer has been taken."""
        return self.complete and not self._chunks

    @property
    def reusable(self) -> bool:
        """Whether the answer is over and another may be asked for."""
        whole = self.complete and self._framed and self._keep_alive
        return whole and not self._stopped and not self._transport.is_closing()

    # ── ends ──────────────────────────────────────────────────────────────────────────────────────────

    def rest(self, seconds: float) -> None:
        """Nothing is under way: close in `seconds` unless asked again."""
        self.rested_at = self.loop.time()
        self.deadline = self.rested_at + seconds

    def expire(self) -> None:
        if self.complete:
            self._transport.close()
        elif self.loop.time() >= self._deadline.at:
            self._fail(DeadlineError("The request's time is up."))
        elif not self._head_done:
            self._fail(UpstreamTimeout("The upstream did not begin to answer in time."))
        else:
            self._fail(UpstreamTimeout("The upstream stopped in the middle of its answer."))
        self._transport.abort()

    def abort(self) -> None:
        """Drop the connection: the upstream sees its client leave."""
        self._deaf = True
        self._rest = None
        self._chunks.clear()
        self.deadline = NEVER
        self._transport.abort()

    def _fail(self, error: InferenceError) -> None:
        if self._error is None:
            self._error = error
        self._arrived.wake()


class _Unsolicited(Exception):
    """A second answer to one request. The first stands; the connection cannot be used again."""
