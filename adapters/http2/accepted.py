"""One accepted gRPC connection: begins a call for each request head and answers each call in a separate task.

greeting ──preface, SETTINGS──▶ open ──drain──▶ draining ──reply to the ping──▶ leaving ──last call──▶ closing

A silent connection is pinged while it has calls, and closed after `idle_timeout` without calls.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Literal, Protocol

from adapters.cut import SERVER, Cut
from adapters.http1.budget import Budget
from adapters.http1.listeners import Accepting, Contexts, SharedSocket, Siblings
from adapters.http2 import frames
from adapters.http2.call import CallServer, GrpcCall
from adapters.http2.call import Limits as Limits
from adapters.http2.connection import CONNECTION_WINDOW, Connection, for_http2
from adapters.http2.control import DRAIN_PING, check_connection_frame
from adapters.http2.fields import Field, encode
from adapters.http2.frames import END_STREAM, MAX_DATA_FRAME, ErrorCode, Violation
from adapters.http2.head import OVERSIZED, RequestHead, read_request
from adapters.http2.status import Code, GrpcError
from adapters.http2.stream import STREAM_WINDOW, Http2Stream

Phase = Literal["greeting", "open", "draining", "leaving"]
HTTP1 = re.compile(rb"(?!PRI )[A-Z]{3,10} ")
TO_HTTP1 = (
    b"HTTP/1.1 426 Upgrade Required\r\nconnection: close\r\ncontent-type: text/plain\r\ncontent-length: 36\r\n\r\n"
    b"This port speaks gRPC (HTTP/2) only\n"
)
CALL_BYTES = 128
"""Approximate bytes of the head and trailers of a response."""


Handler = Callable[[GrpcCall], Awaitable[None]]


class AcceptingServer(CallServer, Protocol):
    """The server, as its connections use it."""

    loop: asyncio.AbstractEventLoop
    handler: Handler
    greeting: bytes
    cut: Cut

    def opened(self, connection: Accepted) -> bool:
        """Count a connection. False if the server is full and no connection is idle."""

    def closed(self, connection: Accepted) -> None:
        """Remove a connection from the count."""

    def begun(self, task: asyncio.Task[None]) -> None:
        """Register the task of a handler that has begun."""

    def ended(self, task: asyncio.Task[None]) -> None:
        """Handle the end of a handler's task."""


class Accepted(Connection[RequestHead]):
    """The server's side of a connection; the docstring of the module describes its phases."""

    __slots__ = ("_pinged", "_reads_before", "_last", "_phase", "_quiet", "message_timeout", "server")

    def __init__(self, server: AcceptingServer) -> None:
        super().__init__(server.loop)
        limits = server.limits
        self.server = server
        self.max_head = limits.max_head
        self.max_message = limits.max_message
        self.max_held = limits.max_held
        self.send_timeout = limits.send_timeout
        self.message_timeout = limits.message_timeout
        self._greeting = frames.PREFACE
        self._phase: Phase = "greeting"
        self._last = 0  # the id of the last stream that the client opened
        self._reads_before = 0  # the value of `reads` at the last check
        self._quiet = 0.0  # seconds without input
        self._pinged = False  # whether a ping waits for its reply

    # ── beginning ─────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._wait_until(self.loop.time() + self.server.limits.greeting_timeout)
        if not self.server.opened(self):
            self.outlet.write(self.server.greeting)
            self._on_violation(
                Violation(ErrorCode.ENHANCE_YOUR_CALM, "the server has reached its maximum number of connections")
            )

    def _on_noise(self, data: bytes) -> None:
        """Answer HTTP/1 with an HTTP/1 error, and any other protocol with a GOAWAY."""
        if HTTP1.match(data):
            self.outlet.write(TO_HTTP1)
            self.close_gently()
        else:
            self.outlet.write(self.server.greeting)
            self._on_violation(Violation(ErrorCode.PROTOCOL_ERROR, "a connection begins with the preface and SETTINGS"))

    def _on_greeted(self) -> None:
        self._phase = "open"
        self.outlet.write(self.server.greeting)  # not earlier: an HTTP/1 client could not parse it
        self._wait_until(self.loop.time() + self.server.limits.ping_interval)
        if self.server.draining:
            self.drain()

    # ── calls ─────────────────────────────────────────────────────────────────────────────────────────

    def _read_head(self, fields: list[Field] | None) -> RequestHead:
        return OVERSIZED if fields is None else read_request(fields)

    def _on_head(self, stream_id: int, head: RequestHead, *, last: bool) -> None:
        if stream_id > self._last and stream_id & 1:
            self._last = stream_id
            self._open(stream_id, head, last)
            return
        stream = self.streams.get(stream_id)
        if stream is None:
            self._check_opened(stream_id)
            self._spend()
        elif not last or stream.received_all:
            stream.break_off(ErrorCode.PROTOCOL_ERROR)
        else:
            stream.received_all = True  # trailers, which gRPC clients do not use
            stream.wake()

    def _open(self, stream_id: int, head: RequestHead, last: bool) -> None:
        if self.outlet.paused:
            self._burden(CALL_BYTES)
        limits = self.server.limits
        full = len(self.streams) >= limits.max_streams or self.outlet.unsent > limits.max_unsent
        if full or self._phase == "leaving":
            self._turn_away(stream_id, ErrorCode.REFUSED_STREAM)
        elif head.malformed:
            self._turn_away(stream_id, ErrorCode.PROTOCOL_ERROR)
        elif head.status != 200:
            self._spend()
            block = encode([(b":status", b"%d" % head.status), (b"content-length", b"0")])
            self.outlet.write(frames.header_frames(stream_id, block, END_STREAM, self.outlet.max_frame))
            if not last:
                self.outlet.write(frames.rst_stream(stream_id, ErrorCode.NO_ERROR))
        else:
            self._begin(stream_id, head, last)

    def _turn_away(self, stream_id: int, code: ErrorCode) -> None:
        self._spend()
        self.outlet.write(frames.rst_stream(stream_id, code))

    def _begin(self, stream_id: int, head: RequestHead, last: bool) -> None:
        call = GrpcCall(self, stream_id, head)
        call.received_all = last
        self.streams[stream_id] = call
        if head.error is not None:
            self._spend()
            call.refuse(head.error)
        else:
            call.task = self.loop.create_task(self._answer_call(call))
            self.server.begun(call.task)

    async def _answer_call(self, call: GrpcCall) -> None:
        SERVER.set(self.server.cut)
        try:
            await self.server.handler(call)
            if not call.ended:
                call.finish()
        except GrpcError as error:
            self._fail(call, error)
        except Exception as error:
            self._report("unhandled error in a handler", error)
            self._fail(call, GrpcError(Code.INTERNAL, "The server failed on this call."))
        finally:
            # The handler was cancelled: by the client's disconnect, or by a wait inside the handler.
            if not call.ended:
                self._fail(call, GrpcError(Code.CANCELLED, "The call was cancelled."))
            if call.task is not None:
                self.server.ended(call.task)

    def _fail(self, call: GrpcCall, error: GrpcError) -> None:
        if call.ended:
            return
        try:
            call.fail(error.code, error.message, error.trailers)
        except ValueError as broken:
            self._report("metadata that cannot be sent", broken)
            call.initial_metadata = ()
            call.fail(Code.INTERNAL, "The server failed on this call.")

    def _report(self, message: str, error: Exception) -> None:
        self.loop.call_exception_handler({"message": message, "exception": error})

    def charge_reset(self) -> None:
        """Count a server reset that the client has caused. Raises `Violation` above the limit."""
        self._spend()

    def _was_reset(self, stream: Http2Stream, code: int) -> None:
        stream.close(self._lost())

    def _on_goaway(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Handle GOAWAY: the client opens no further calls; open calls are answered."""
        check_connection_frame(stream_id, fits=len(payload) >= frames.GOAWAY_HEAD.size)
        self._spend()

    def _check_opened(self, stream_id: int) -> None:
        if stream_id > self._last or not stream_id & 1:
            raise Violation(ErrorCode.PROTOCOL_ERROR, "a frame of a stream that was never opened")

    def _last_stream(self) -> int:
        return self._last

    # ── ends ──────────────────────────────────────────────────────────────────────────────────────────

    def forget(self, stream: Http2Stream) -> None:
        super().forget(stream)
        if self._phase == "leaving" and not self.streams:
            self.close_gently()

    def drain(self) -> None:
        """Announce the close, then refuse new calls, then close after the last call: no call is lost in transit."""
        if self._phase == "open":
            self._phase = "draining"
            self.outlet.write(frames.goaway(frames.MAX_STREAM_ID, ErrorCode.NO_ERROR, "the server is shutting down"))
            self.outlet.write(frames.frame(frames.PING, 0, 0, DRAIN_PING))
            self._wait_until(self.loop.time() + self.server.limits.lull)

    @property
    def spare(self) -> bool:
        """Whether the connection has no call and nothing to send."""
        return not self.streams and not self.transport.get_write_buffer_size()

    def give_way(self) -> None:
        if self._phase == "open" and not self._closing:
            self.outlet.write(
                frames.goaway(
                    self._last, ErrorCode.NO_ERROR, "the server has reached its maximum number of connections"
                )
            )
            self.outlet.flush()
        self.abort()

    def _on_drain_ping(self) -> None:
        if self._phase == "draining":
            self._leave()

    def _leave(self) -> None:
        self._phase = "leaving"
        self.outlet.write(frames.goaway(self._last, ErrorCode.NO_ERROR, "the server is shutting down"))
        self._wait_until(self.loop.time() + self.server.limits.ping_interval)
        if not self.streams:
            self.close_gently()

    def _lapse(self, now: float) -> None:
        if self._phase == "greeting":
            self.abort()
        elif self._phase == "draining":
            self._leave()
        else:
            self._listen(now)

    def _listen(self, now: float) -> None:
        """Check that a silent client is alive: ping it while it has calls, and drop it if it does not reply or read."""
        limits = self.server.limits
        self._wait_until(now + limits.ping_interval)
        unread, before = self.transport.get_write_buffer_size() if self.outlet.paused else 0, self._unread
        self._unread = unread
        if 0 < before <= unread:
            self.abort()
            return
        if self.reads != self._reads_before:
            self._reads_before = self.reads
            self._pinged = False
            self._quiet = 0.0
            return
        self._quiet += limits.ping_interval
        if self._pinged:
            self.abort()
        elif self.streams:
            self._pinged = True
            self.outlet.write(frames.frame(frames.PING, 0, 0, b"anybody?"))
        elif self._quiet >= limits.idle_timeout:
            self.drain()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.server.closed(self)

    def hurry(self, lull: float, patience: float) -> None:
        """Drain the connection. A client that has not sent its preface yet has `patience` seconds to send it.

        Clients take a connection that closes before its first frame for a server that is down, and fail their calls.
        """
        if self._phase == "greeting":
            self._wait_until(min(self._due, self.loop.time() + patience))
        else:
            self.drain()

    def end_requests(self) -> set[asyncio.Task[None]]:
        """Cut the calls in progress. Returns their tasks."""
        calls = [call for call in self.streams.values() if isinstance(call, GrpcCall)]
        tasks = {call.task for call in calls if call.task is not None and not call.task.done()}
        for task in tasks:
            self.server.cancel(task)
        return tasks

    def _lost(self) -> Exception:
        return GrpcError(Code.CANCELLED, "The client has disconnected.")


class Server(Accepting[Accepted]):
    """Serves one handler on any number of TCP, TLS and Unix listeners.

    A TLS context is changed to offer only HTTP/2: no other listener may use the same context.
    """

    def __init__(self, handler: Handler, limits: Limits | None = None, budget: Budget | None = None) -> None:
        self.handler = handler
        self.limits = limits or Limits()
        super().__init__(lambda: Accepted(self), self.limits.max_connections, self.limits.lull)
        self.budget = budget or Budget(self.limits.max_held_by_all)
        self.greeting = frames.settings_frame(
            {
                frames.MAX_CONCURRENT_STREAMS: self.limits.max_streams,
                frames.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
                frames.MAX_FRAME_SIZE: MAX_DATA_FRAME,
                frames.MAX_HEADER_LIST_SIZE: self.limits.max_head,
            }
        ) + frames.window_update(0, CONNECTION_WINDOW - frames.DEFAULT_WINDOW)

    def listen_socket(
        self, bound: socket.socket, tls: ssl.SSLContext | Contexts | None = None, siblings: Siblings | None = None
    ) -> SharedSocket:
        """`tls` offers HTTP/2 alone; a function returns contexts that do."""
        return super().listen_socket(bound, for_http2(tls) if isinstance(tls, ssl.SSLContext) else tls, siblings)

    def closed(self, connection: Accepted) -> None:
        """Remove a connection from the count."""
        self._lost(connection)

    def begun(self, task: asyncio.Task[None]) -> None:
        """Register the task of a handler: a drain waits for its end."""
        self._tasks.add(task)

    def ended(self, task: asyncio.Task[None]) -> None:
        """Remove the task of a handler that is about to end."""
        self._tasks.discard(task)

    def cancel(self, task: asyncio.Task[None]) -> None:
        """Cancel a handler at most once: a second cancel would interrupt its cleanup. The task may not have begun."""
        if not task.done() and not task.cancelling():
            task.add_done_callback(self._tasks.discard)
            task.cancel()

    async def aclose(self) -> None:
        """Stop at once: calls in progress are cancelled, and their handlers have ended on return."""
        self._stop_accepting()
        for connection in list(self.connections):
            connection.abort()
        for task in set(self._tasks):
            self.cancel(task)
        if self._tasks:
            await asyncio.wait(set(self._tasks))
