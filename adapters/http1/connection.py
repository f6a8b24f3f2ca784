"""One accepted connection: bytes in, requests queued, answers out in order.

Parsing happens in `data_received`; each request is answered by a task that runs the handler. The connection
is always in one phase, and each phase has an end (`deadline`):

    idle ──first byte──▶ head ──blank line──▶ body ──last byte──▶ answering ──▶ idle
    linger:  answered and closing, the rest of what the client sends is thrown away
    closing: the client has yet to take the last bytes of its answer
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, cast

import httptools

from adapters.errors import CallerError, InferenceError
from adapters.http1 import head
from adapters.http1.budget import Budget
from adapters.http1.feeding import Data, Feeding
from adapters.http1.head import Refused
from adapters.http1.incoming import Incoming, too_large
from adapters.http1.message import BodyStream, Headers, Response, Waiter, encode_head
from adapters.http1.sweeper import NEVER

if TYPE_CHECKING:
    from adapters.http1.server import Server

Phase = Literal["idle", "head", "body", "answering", "linger", "closing"]
LINGER_SECONDS = 2.0
UNREAD_BODY_BYTES = 64 * 1024
NO_BODY_STATUS = frozenset({204, 304})


class Connection(Feeding):
    """See the module's docstring."""

    __slots__ = (
        "_answering", "_arrived", "_asked", "_body_started", "_can_write", "_fields", "_in_head", "_incoming",
        "_overhead", "_parser", "_queue", "_refusal", "_server", "_target", "_task", "_unsent", "_upgrading",
        "_writing_paused", "deadline", "peer", "phase",
    )  # fmt: skip

    def __init__(self, server: "Server") -> None:
        super().__init__(server.loop)
        self._server = server
        self._parser = httptools.HttpRequestParser(self)
        self._queue: deque[Incoming] = deque()
        self._incoming: Incoming | None = None
        # One task answers all requests of the connection: making one for each would cost more than waking it.
        self._task: asyncio.Task[None] | None = None
        self._answering = False
        self._asked = Waiter(server.loop)
        self._arrived = Waiter(server.loop)
        self._can_write = Waiter(server.loop)
        self._writing_paused = False
        self._refusal: Response | None = None  # goes out after the answers that are due
        self._fields: list[tuple[bytes, bytes]] = []
        self._in_head = False
        self._overhead = 0  # bytes received since a request ended or a piece of a body came
        self._unsent = 0  # bytes that the client had not taken when it was last looked at
        self._target = b""
        self._upgrading = False  # the parser stops behind this head, and takes the body for another protocol
        self._body_started = 0.0
        self.phase: Phase = "idle"
        self.deadline = NEVER

    # ── transport events ──────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.peer = peer[0] if isinstance(peer, tuple) else "unix"
        self._enter("idle", self._server.limits.head_timeout)
        if not self._server.opened(self):
            self._refuse(503, "too_many_connections", "This server has no connection to spare.")

    @property
    def budget(self) -> Budget:
        """The server's."""
        return self._server.budget

    @property
    def max_body(self) -> int:
        return self._server.limits.max_body

    def peer_certificate(self) -> Mapping[str, Any] | None:
        """None where TLS checked none: what it did not check says nothing."""
        return self._transport.get_extra_info("peercert") or None

    def connection_lost(self, exc: Exception | None) -> None:
        self.deadline = NEVER
        self._deaf = True
        self._rest = None
        del self._parser  # which refers to this: bodies would stay until the next collection of cycles
        if self._task is not None:
            self._task.cancel()
        self._server.closed(self, self._task)

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._can_write.wake()

    def _feed(self, data: Data) -> None:
        # Counted before the parser sees it: a field or a trailer that never ends is buffered inside the parser.
        self._overhead += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade(data, upgrade.args[0])
        except httptools.HttpParserError as error:
            self._malformed(error)
        else:
            if self._overhead > self._server.limits.max_head:
                if self._incoming is None:
                    self._refuse(431, "headers_too_large", "The request head is too large.")
                else:
                    self._break_body()

    def _ignore_upgrade(self, data: Data, at: int) -> None:
        """A server may ignore an upgrade (RFC 9110 7.8). llhttp does not: another parser reads the body behind it."""
        incoming = self._incoming
        if incoming is None:
            self._last_request()
            return
        incoming.keep_alive = False
        self._parser = httptools.HttpRequestParser(_BodyEvents(self))
        framing = b"content-length: %d" % incoming.length if incoming.length else b"transfer-encoding: chunked"
        self._parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n\r\n" % framing)
        if at < len(data):
            self._feed(data[at:])

    def _body_left(self) -> int:
        incoming = self._incoming
        return 0 if incoming is None else max(0, incoming.length - incoming.size)

    # ── parser events ─────────────────────────────────────────────────────────────────────────────────

    def on_message_begin(self) -> None:
        self._in_head = True
        self._fields = []
        self._target = b""
        if self.phase == "idle":
            self._enter("head", self._server.limits.head_timeout)

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._incoming is None:  # else a trailer: dropped, as RFC 9110 6.5.1 allows
            self._fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._bound_head()
        method = self._parser.get_method()
        fields = head.merged(self._fields)
        http11 = head.check(self._parser.get_http_version(), method, fields)
        self._in_head = False
        incoming = Incoming(self, method.decode("latin-1"), head.path_of(self._target), fields, http11=http11)
        incoming.keep_alive = self._parser.should_keep_alive()
        incoming.length = int(fields.get(b"content-length", b"0"))
        if incoming.length > self._server.limits.max_body:
            incoming.error = too_large(self._server.limits.max_body)
        if b"upgrade" in fields and self._parser.should_upgrade():
            self._upgrading = incoming.length > 0 or b"transfer-encoding" in fields
        self._incoming = incoming
        self._queue.append(incoming)
        if not self._answering:
            self._answering = True
            self._expect_body()
            if self._task is None:
                self._task = self._server.loop.create_task(self._answer_requests())
            else:
                self._asked.wake()
        elif len(self._queue) >= self._server.limits.max_pipelined:
            self._pause_reading()

    def on_body(self, body: bytes) -> None:
        self._overhead = 0
        incoming = self._incoming
        if incoming is None:
            return
        if not incoming.take(body, self._server.limits.max_body):
            self._arrived.wake()
            return
        if not incoming.wanted and incoming.size > UNREAD_BODY_BYTES:
            self._pause_reading()
        if self.phase == "body":
            limits = self._server.limits
            self.deadline = self._body_started + limits.body_timeout + incoming.size / limits.min_body_rate

    def on_message_complete(self) -> None:
        incoming = self._incoming
        if incoming is None:
            return
        if self._upgrading:
            self._upgrading = False
            return
        incoming.complete = True
        self._incoming = None
        self._overhead = 0
        self._arrived.wake()
        if self.phase == "body":
            self.phase, self.deadline = "answering", NEVER
        if not incoming.keep_alive:
            self._deaf = True

    def _bound_head(self) -> None:
        """Each read is bounded, so what a flood costs before this is too."""
        limits = self._server.limits
        if len(self._fields) > limits.max_headers or (
            self._overhead > limits.max_head and self._head_size() > limits.max_head
        ):
            raise Refused(431, "headers_too_large", "The request head is too large.")

    def _head_size(self) -> int:
        return len(self._target) + sum(len(name) + len(value) for name, value in self._fields)

    def _malformed(self, error: httptools.HttpParserError) -> None:
        cause = error.__context__
        if isinstance(cause, Refused):
            self._refuse(cause.status, cause.code, cause.message)
        elif self._incoming is not None:
            self._break_body()
        else:
            self._refuse(400, "malformed_request", "The request is not valid HTTP/1.1.")

    def _break_body(self) -> None:
        """The handler runs already: it hears of the broken body from `read`, and answers."""
        assert self._incoming is not None
        self._incoming.error = CallerError("The request body is not validly framed.", code="malformed_request")
        self._last_request()
        self._arrived.wake()

    # ── receiving a body ──────────────────────────────────────────────────────────────────────────────

    def _expect_body(self) -> None:
        self._body_started = self._server.loop.time()
        self._enter("body", self._server.limits.body_timeout)

    async def receive_body(self, incoming: Incoming) -> None:
        """Wait until `incoming` is whole or has an error."""
        if incoming.expects_continue and incoming.size == 0:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._resume_reading()
        while not incoming.complete and incoming.error is None:
            await self._arrived.wait()

    def _last_request(self) -> None:
        """Hear no more; the connection closes after the answers that are due."""
        self._deaf = True
        if self._queue:
            self._queue[-1].keep_alive = False

    # ── answering ─────────────────────────────────────────────────────────────────────────────────────

    async def _answer_requests(self) -> None:
        """Answer requests one after the other until the connection is to close."""
        try:
            while await self._answer_queued():
                self._answering = False
                if self._in_head:
                    self._enter("head", self._server.limits.head_timeout)
                else:
                    self._enter("idle", self._server.limits.keepalive_timeout)
                while not self._queue:
                    await self._asked.wait()
            self._close_gently()
        except asyncio.CancelledError:
            self._transport.abort()  # by a disconnect, or by a handler whose own wait was cancelled
            # A cancelled task holds its error, the error its frames, and these this connection with all its buffers.
            # The reference cycle would stay until a full garbage collection, which may be minutes away.
            self._task = None
            raise
        except Exception as error:
            self._report("unhandled error in a connection", error)
            self._transport.abort()
        finally:
            self._queue.clear()  # requests refer to this connection, too

    async def _answer_queued(self) -> bool:
        """Answer what has been asked; whether the connection stays open."""
        while self._queue:
            incoming = self._queue[0]
            if not incoming.complete:
                self._expect_body()
            try:
                await self._answer(incoming)
            finally:
                incoming.release()
            self._queue.popleft()
            if not incoming.keep_alive:
                return False
            if self._paused and len(self._queue) < self._server.limits.max_pipelined:
                self._resume_reading()
            if self._queue:
                await asyncio.sleep(0)  # pipelined requests must not hold the loop: others have a turn between two
        if self._refusal is not None:
            self._write_whole(None, self._refusal)
            return False
        # A drain that began after the head of the last answer could not announce the close in it.
        return not self._server.draining

    async def _answer(self, incoming: Incoming) -> None:
        try:
            response = await self._server.handler(incoming)
        except Exception as error:
            self._report("unhandled error in a handler", error)
            response = self._server.refusal(
                500, "internal_error", "The server failed on this request.", incoming.headers
            )
        self.phase, self.deadline = "answering", NEVER
        if not incoming.complete or self._server.draining:
            incoming.keep_alive = False
        try:
            if isinstance(response.body, bytes):
                self._write_whole(incoming, response)
                if self._writing_paused:
                    await self._hold_until_taken(incoming.budget)
            else:
                await self._write_stream(incoming, response, response.body)
        except Exception as error:
            # A body that fails here has no other way left to say so than to end without an end.
            if not isinstance(error, InferenceError):
                self._report("unhandled error in a response", error)
            incoming.keep_alive = False
            self._transport.abort()

    def _report(self, message: str, error: Exception) -> None:
        self._server.loop.call_exception_handler({"message": message, "exception": error})

    def _write_whole(self, incoming: Incoming | None, response: Response) -> None:
        """`incoming` is None for a refusal, after which the connection closes."""
        assert isinstance(response.body, bytes)
        framing = b"" if response.status in NO_BODY_STATUS else b"content-length: %d\r\n" % len(response.body)
        persistence = b"connection: close\r\n" if incoming is None else _persistence(incoming)
        head = encode_head(response, framing + persistence, self._server.date())
        without_body = not framing or (incoming is not None and incoming.method == "HEAD")
        self._transport.write(head if without_body else head + response.body)

    async def _write_stream(self, incoming: Incoming, response: Response, body: BodyStream) -> None:
        """Chunked to HTTP/1.1, delimited by the close to HTTP/1.0. The head goes out with the first chunk."""
        try:
            chunked = incoming.http11
            incoming.keep_alive = incoming.keep_alive and chunked
            framing = b"transfer-encoding: chunked\r\n" if chunked else b""
            pending = encode_head(response, framing + _persistence(incoming), self._server.date())
            if incoming.method == "HEAD":
                self._transport.write(pending)
                return
            async for piece in body:
                if piece:
                    data = b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece
                    self._transport.write(pending + data if pending else data)
                    pending = b""
                    if self._writing_paused:
                        await self._drain()
            self._transport.write(pending + b"0\r\n\r\n" if chunked else pending)
            await self._drain()
        finally:
            await body.aclose()

    async def _hold_until_taken(self, budget: Budget) -> None:
        """What a client is slow to take counts, so that slow clients cannot fill the memory with whole answers."""
        size = self._transport.get_write_buffer_size()
        budget.force(size)
        try:
            await self._drain()
        finally:
            budget.give(size)

    async def _drain(self) -> None:
        while self._writing_paused:
            self._await_taking("answering")
            await self._can_write.wait()
        self.deadline = NEVER

    def _await_taking(self, phase: Phase) -> None:
        self._unsent = self._transport.get_write_buffer_size()
        self._enter(phase, self._server.limits.send_timeout)

    # ── ends ──────────────────────────────────────────────────────────────────────────────────────────

    def _enter(self, phase: Phase, seconds: float) -> None:
        self.phase = phase
        self.deadline = self._server.loop.time() + seconds

    def expire(self) -> None:
        """The phase lasted too long."""
        if self.phase == "head":
            self._refuse(408, "request_timeout", "The request head took too long.")
        elif self.phase == "body" and self._incoming is not None:
            self._incoming.error = CallerError("The request body came too slowly.", code="request_timeout")
            self._arrived.wake()
        elif self.phase in ("idle", "linger"):
            self._close()
        elif self._transport.get_write_buffer_size() < self._unsent:
            self._await_taking(self.phase)  # the client is slow, but takes its answer
        else:
            self._transport.abort()

    def _refuse(self, status: int, code: str, message: str) -> None:
        """Answer what never became a request, after the answers that are due before it."""
        self._deaf = True
        self._refusal = self._server.refusal(status, code, message, Headers(dict(self._fields)))
        if not self._answering:
            self._write_whole(None, self._refusal)
            self._close_gently()

    def _close_gently(self) -> None:
        """Close so that the last answer arrives: unread input would turn the close into a reset."""
        if self._transport.is_closing():
            return
        self._deaf = True
        self._enter("linger", LINGER_SECONDS)
        self._resume_reading()
        if self._transport.can_write_eof():
            try:
                self._transport.write_eof()
            except OSError:  # the peer has reset the connection
                self._transport.abort()
        else:
            self._transport.close()

    def _close(self) -> None:
        """Close once the client has taken what was written; see that it does."""
        self._transport.close()
        self._await_taking("closing")

    def hurry(self, seconds: float) -> None:
        """For draining: a request that comes within `seconds` is answered; without one an idle connection closes."""
        if not self._answering and self.phase in ("idle", "linger"):
            self.deadline = min(self.deadline, self._server.loop.time() + seconds)

    @property
    def spare(self) -> bool:
        """Whether it is idle, or has yet to send a whole head, or lingers, and may give way to another connection."""
        phase = self.phase in ("idle", "head", "linger")
        return phase and not self._queue and not self._transport.get_write_buffer_size()

    def give_way(self) -> None:
        self._deaf = True
        self._transport.abort()

    def abort(self) -> asyncio.Task[None] | None:
        """Drop the connection now; returns its task, which is being cancelled."""
        task, self._task = self._task, None  # a second cancel, once the connection is lost, would break its cleanup
        self._transport.abort()
        if task is not None:
            task.cancel()
        return task


class _BodyEvents:
    """The callbacks of a parser that reads nothing but a body."""

    __slots__ = ("on_body", "on_message_complete")

    def __init__(self, connection: Connection) -> None:
        self.on_body = connection.on_body
        self.on_message_complete = connection.on_message_complete


def _persistence(incoming: Incoming) -> bytes:
    """The Connection field, left out where it is the version's default."""
    if not incoming.keep_alive:
        return b"connection: close\r\n"
    return b"" if incoming.http11 else b"connection: keep-alive\r\n"
