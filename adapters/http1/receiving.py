"""The receiving half of an accepted connection: parses requests, queues them, and receives their bodies.

llhttp parses in `data_received`; its callbacks (`on_…`) queue each request when its head is complete. The native core
parses a request that arrives whole, between two requests of llhttp.
"""

from collections.abc import Mapping
from typing import Any, Literal

import httptools

from adapters import native
from adapters.errors import CallerError
from adapters.http1.budget import Budget
from adapters.http1.feeding import Data, Feeding
from adapters.http1.host import Host
from adapters.http1.incoming import Fields, HeadRefused, Incoming, check_head, merged_fields, path_of, too_large
from adapters.http1.message import Waiter
from adapters.http1.sweeper import NEVER

Phase = Literal["idle", "head", "body", "answering", "linger", "closing"]
UNREAD_BODY_BYTES = 64 * 1024


class RequestReceiver(Feeding):
    """Parses and queues requests. A subclass answers the requests in `_queue`; the last may still be incomplete."""

    __slots__ = (
        "_answering", "_arrived", "_body_started", "_fields", "_in_head", "_incoming", "_overhead", "_parser", "_queue",
        "_server", "_target", "_upgrading", "deadline", "peer", "phase",
    )  # fmt: skip
    peer: str

    def __init__(self, server: Host) -> None:
        super().__init__(server.loop)
        self._server = server
        self._parser: httptools.HttpRequestParser | None = None
        self._queue: list[Incoming] = []  # short: smaller than a deque
        self._incoming: Incoming | None = None
        self._answering = False
        self._arrived = Waiter(server.loop)
        self._fields: list[tuple[bytes, bytes]] = []
        self._in_head = False
        self._overhead = 0  # bytes received since the end of a request or the last piece of a body
        self._target = b""
        self._upgrading = False  # the parser stops after this head and treats the body as another protocol
        self._body_started = 0.0
        self.phase: Phase = "idle"
        self.deadline = NEVER

    @property
    def budget(self) -> Budget:
        """The budget of the server."""
        return self._server.budget

    @property
    def max_body(self) -> int:
        return self._server.limits.max_body

    def peer_certificate(self) -> Mapping[str, Any] | None:
        """The client's certificate; None unless TLS has verified it."""
        return self._transport.get_extra_info("peercert") or None

    def _feed(self, data: Data) -> None:
        if self._incoming is None and not self._in_head and not self._overhead:
            whole = native.whole_request(data, self._server.limits.max_headers)
            if whole is not None and len(data) <= self._server.limits.max_head:
                self._take_whole(*whole)
                return
        # Counted before parsing: the parser buffers a field or a trailer that never ends.
        self._overhead += len(data)
        try:
            self._llhttp().feed_data(data)
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

    def _llhttp(self) -> httptools.HttpRequestParser:
        """The parser, which most connections never need beside the native core."""
        if self._parser is None:
            self._parser = httptools.HttpRequestParser(self)
        return self._parser

    def _take_whole(self, method: str, target: bytes, fields: Fields, keep_alive: bool, body: bytes) -> None:
        """Queue a request that arrived whole, as the callbacks of llhttp queue it."""
        incoming = Incoming(self, method, target, fields, http11=True)
        incoming.keep_alive = keep_alive
        incoming.length = len(body)
        if len(body) > UNREAD_BODY_BYTES:
            self._queue_request(incoming)
            self.on_body(body)
            self.on_message_complete()
            return
        incoming.complete = True
        self._queue_request(incoming)
        incoming.size = len(body)
        if body and incoming.error is None:
            incoming.body.append(body)
        self._incoming = None
        if not keep_alive:
            self._deaf = True

    def _ignore_upgrade(self, data: Data, at: int) -> None:
        """Ignore an upgrade, as RFC 9110 7.8 permits. llhttp cannot ignore it: a second parser reads the body."""
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
        if self._incoming is None:  # otherwise a trailer, which RFC 9110 6.5.1 permits to drop
            self._fields.append((name.lower(), value.rstrip(b" \t")))  # RFC 9110 5.5; llhttp strips the left side only

    def on_headers_complete(self) -> None:
        self._bound_head()
        parser = self._llhttp()
        method = parser.get_method()
        fields = merged_fields(self._fields)
        http11 = check_head(parser.get_http_version(), method, fields)
        self._in_head = False
        incoming = Incoming(self, method.decode("latin-1"), path_of(self._target), fields, http11=http11)
        incoming.keep_alive = parser.should_keep_alive()
        incoming.length = int(fields.get(b"content-length", b"0"))
        if b"upgrade" in fields and parser.should_upgrade():
            self._upgrading = incoming.length > 0 or b"transfer-encoding" in fields
        self._queue_request(incoming)

    def _queue_request(self, incoming: Incoming) -> None:
        """Queue a request whose head has arrived."""
        if (limits := self._server.limits).uploads and incoming.method == "POST":
            incoming.limit = limits.uploads.get(incoming.target, limits.max_body)
        if incoming.length > incoming.limit:
            incoming.error = too_large(incoming.limit)
        self._incoming = incoming
        self._queue.append(incoming)
        if not self._answering:
            self._answering = True
            if incoming.complete:
                self.phase, self.deadline = "answering", NEVER
            else:
                self._expect_body()
            self._begin_answering()
        elif len(self._queue) >= limits.max_pipelined:
            self._pause_reading()

    def on_body(self, body: bytes) -> None:
        self._overhead = 0
        incoming = self._incoming
        if incoming is None:
            return
        if not incoming.take(body):
            self._arrived.wake()
            return
        if incoming.in_pieces:
            self._arrived.wake()
            if incoming.unread > UNREAD_BODY_BYTES:
                self._pause_reading()
        elif not incoming.read_started and incoming.size > UNREAD_BODY_BYTES:
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
        self._fields = []
        self._overhead = 0
        self._arrived.wake()
        if self.phase == "body":
            self.phase, self.deadline = "answering", NEVER
        if not incoming.keep_alive:
            self._deaf = True

    def _bound_head(self) -> None:
        """Reject a head above the limits. Bytes before this check are bounded because each read is bounded."""
        limits = self._server.limits
        if len(self._fields) > limits.max_headers or (
            self._overhead > limits.max_head and self._head_size() > limits.max_head
        ):
            raise HeadRefused(431, "headers_too_large", "The request head is too large.")

    def _head_size(self) -> int:
        return len(self._target) + sum(len(name) + len(value) for name, value in self._fields)

    def _malformed(self, error: httptools.HttpParserError) -> None:
        cause = error.__context__
        if isinstance(cause, HeadRefused):
            self._refuse(cause.status, cause.code, cause.message)
        elif self._incoming is not None:
            self._break_body()
        else:
            self._refuse(400, "malformed_request", "The request is not valid HTTP/1.1.")

    def _break_body(self) -> None:
        """Mark the body as malformed. The handler already runs: `read` raises the error in it."""
        assert self._incoming is not None
        self._incoming.error = CallerError("The request body is not validly framed.", code="malformed_request")
        self._last_request()
        self._arrived.wake()

    # ── receiving a body ──────────────────────────────────────────────────────────────────────────────

    def _expect_body(self) -> None:
        self._body_started = now = self._server.loop.time()
        self.phase, self.deadline = "body", now + self._server.limits.body_timeout

    async def receive_body(self, incoming: Incoming) -> None:
        """Wait until `incoming` is complete or has an error."""
        if incoming.expects_continue and incoming.size == 0:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._resume_reading()
        while not incoming.complete and incoming.error is None:
            await self._arrived.wait()

    async def receive_piece(self, incoming: Incoming) -> None:
        """Wait until a piece of the body of `incoming` has arrived, or until its end or an error."""
        if incoming.expects_continue and incoming.size == 0:
            incoming.expects_continue = False
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._resume_reading()
        while not (incoming.body or incoming.complete or incoming.error is not None):
            await self._arrived.wait()

    def _last_request(self) -> None:
        """Discard further input. The connection closes after the responses that are due."""
        self._deaf = True
        if self._queue:
            self._queue[-1].keep_alive = False

    # ── implemented by the responding half ──────────────────────────────────────────────────────────────────

    def _begin_answering(self) -> None:
        """Begin to answer the first request of an idle connection."""
        raise NotImplementedError

    def _refuse(self, status: int, code: str, message: str) -> None:
        """Reject input that is not a valid request, after the responses that are due before it."""
        raise NotImplementedError

    @property
    def rests(self) -> bool:
        """Whether the connection waits for a request, whose time limits are seconds."""
        return self.phase == "idle"

    def _enter(self, phase: Phase, seconds: float) -> None:
        self.phase = phase
        self.deadline = self._server.loop.time() + seconds


class _BodyEvents:
    """The callbacks of a parser that reads only a body."""

    __slots__ = ("on_body", "on_message_complete")

    def __init__(self, connection: RequestReceiver) -> None:
        self.on_body = connection.on_body
        self.on_message_complete = connection.on_message_complete
