"""One accepted connection: parses requests, queues them, and writes the responses in order.

`data_received` parses; one task runs the handler and writes the responses. The connection is always in exactly
one phase, and `deadline` bounds each phase:

    idle ──first byte──▶ head ──blank line──▶ body ──last byte──▶ answering ──▶ idle
    linger:  the last response is written; further input is discarded until the close
    closing: the client has not yet read the last bytes of its response
"""

import asyncio
from typing import cast

from adapters.cut import SERVER, survived
from adapters.errors import CallerError, InferenceError
from adapters.http1.budget import Budget
from adapters.http1.host import Host
from adapters.http1.incoming import Incoming
from adapters.http1.message import BodyStream, Headers, Response, Waiter, encode_head, write_message
from adapters.http1.receiving import Phase, RequestReceiver
from adapters.http1.sweeper import NEVER

LINGER_SECONDS = 2.0
NO_BODY_STATUS = frozenset({204, 304})


class Connection(RequestReceiver):
    """The responding half of an accepted connection; the docstring of the module describes its phases."""

    __slots__ = (
        "_request_waiter", "_can_write", "_refusal", "_task", "_unsent", "_writing_paused",
    )  # fmt: skip

    def __init__(self, server: Host) -> None:
        super().__init__(server)
        # One task answers all requests of the connection: creating a task for each request costs more than waking one.
        self._task: asyncio.Task[None] | None = None
        self._request_waiter = Waiter(server.loop)
        self._can_write = Waiter(server.loop)
        self._writing_paused = False
        self._refusal: Response | None = None  # sent after the responses that are due
        self._unsent = 0  # bytes that the client had not read at the last check

    # ── transport events ──────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.peer = peer[0] if isinstance(peer, tuple) else "unix"
        self._enter("idle", self._server.limits.head_timeout)
        if not self._server.opened(self):
            self._refuse(503, "too_many_connections", "The server has reached its maximum number of connections.")

    def connection_lost(self, exc: Exception | None) -> None:
        self.deadline = NEVER
        self._deaf = True
        self._rest = None
        self._parser = None  # breaks a reference cycle: bodies would stay until the next garbage collection
        if self._task is not None:
            self._task.cancel()
        self._server.closed(self, self._task)

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._can_write.wake()

    # ── answering ─────────────────────────────────────────────────────────────────────────────────────

    def _begin_answering(self) -> None:
        if self._task is None:
            self._task = self._server.loop.create_task(self._answer_requests())
        else:
            self._request_waiter.wake()

    async def _answer_requests(self) -> None:
        """Answer requests in order until the connection must close."""
        SERVER.set(self._server.cut)
        try:
            while await self._answer_queued():
                self._answering = False
                if self._in_head:
                    self._enter("head", self._server.limits.head_timeout)
                else:
                    self._enter("idle", self._server.limits.keepalive_timeout)
                while not self._queue:
                    await self._request_waiter.wait()
            self._close_gently()
        except asyncio.CancelledError:
            self._transport.abort()  # after a disconnect, or after the cancellation of the handler
            # A cancelled task refers to its error, the error to its frames, and the frames to this connection and its
            # buffers. The cycle would stay until a full garbage collection, which may be minutes away.
            self._task = None
            raise
        except Exception as error:
            self._report("unhandled error in a connection", error)
            self._transport.abort()
        finally:
            self._queue.clear()  # requests refer to this connection

    async def _answer_queued(self) -> bool:
        """Answer all queued requests. Returns whether the connection stays open."""
        while self._queue:
            incoming = self._queue[0]
            if not incoming.complete:
                self._expect_body()
            try:
                await self._answer(incoming)
            finally:
                incoming.release()
            del self._queue[0]
            if not incoming.keep_alive:
                return False
            if self._paused and len(self._queue) < self._server.limits.max_pipelined:
                self._resume_reading()
            if self._queue:
                await asyncio.sleep(0)  # other tasks of the loop run between two pipelined requests
        if self._refusal is not None:
            self._write_whole(None, self._refusal)
            return False
        # If a drain began after the head of the last response, that head could not announce the close.
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
            # The head is already sent: an incomplete body is the only way left to report the failure.
            if not isinstance(error, InferenceError):
                self._report("unhandled error in a response", error)
            incoming.keep_alive = False
            self._transport.abort()

    def _report(self, message: str, error: Exception) -> None:
        self._server.loop.call_exception_handler({"message": message, "exception": error})

    def _write_whole(self, incoming: Incoming | None, response: Response) -> None:
        """Write a response with a known length. `incoming` is None for a refusal, after which the connection closes."""
        assert isinstance(response.body, bytes)
        framing = b"" if response.status in NO_BODY_STATUS else b"content-length: %d\r\n" % len(response.body)
        persistence = b"connection: close\r\n" if incoming is None else _persistence(incoming)
        head = encode_head(response, framing + persistence, self._server.date())
        without_body = not framing or (incoming is not None and incoming.method == "HEAD")
        write_message(self._transport, head, b"" if without_body else response.body)

    async def _write_stream(self, incoming: Incoming, response: Response, body: BodyStream) -> None:
        """Write a stream: in chunks for HTTP/1.1, delimited by the close for HTTP/1.0.

        The head is sent together with the first chunk.
        """
        try:
            chunked = incoming.http11
            incoming.keep_alive = incoming.keep_alive and chunked
            framing = b"transfer-encoding: chunked\r\n" if chunked else b""
            pending = encode_head(response, framing + _persistence(incoming), self._server.date())
            response.headers = ()  # a thousand streams would hold a megabyte of them
            if incoming.method == "HEAD":
                self._transport.write(pending)
                return
            async for piece in body:
                if piece:
                    if chunked:
                        write_message(self._transport, b"%b%x\r\n" % (pending, len(piece)), piece, b"\r\n")
                    else:
                        write_message(self._transport, pending, piece)
                    if pending and chunked and response.write_to is not None:
                        response.write_to(self._write_chunk)
                    pending = b""
                    if self._writing_paused:
                        await self._drain_stream()
            self._transport.write(pending + b"0\r\n\r\n" if chunked else pending)
            await self._drain()
        finally:
            await body.aclose()

    def _write_chunk(self, piece: bytes) -> bool:
        """The `Writer` of a stream."""
        if self._writing_paused or self._transport.is_closing():
            return False
        write_message(self._transport, b"%x\r\n" % len(piece), piece, b"\r\n")
        return True

    async def _hold_until_taken(self, budget: Budget) -> None:
        """Charge the unread bytes of a response to `budget`, so that slow clients cannot exhaust the memory."""
        size = self._transport.get_write_buffer_size()
        budget.force(size)
        try:
            await self._drain()
        finally:
            budget.give(size)

    async def _drain_stream(self) -> None:
        """Wait until the client has read a part. A cut ends the stream in its next piece, which reports it."""
        try:
            await self._drain()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if survived() is None or task is None:
                raise
            task.cancel()

    async def _drain(self) -> None:
        while self._writing_paused:
            self._await_taking("answering")
            await self._can_write.wait()
        self.deadline = NEVER

    def _await_taking(self, phase: Phase) -> None:
        self._unsent = self._transport.get_write_buffer_size()
        self._enter(phase, self._server.limits.send_timeout)

    # ── ends ──────────────────────────────────────────────────────────────────────────────────────────

    def expire(self) -> None:
        """Handle the end of the phase's time limit."""
        if self.phase == "head":
            self._refuse(408, "request_timeout", "The request head took too long.")
        elif self.phase == "body" and self._incoming is not None:
            self._incoming.error = CallerError("The request body arrived too slowly.", code="request_timeout")
            self._arrived.wake()
        elif self.phase in ("idle", "linger"):
            self._close()
        elif self._transport.get_write_buffer_size() < self._unsent:
            self._await_taking(self.phase)  # the client is slow, but reads its response
        else:
            self._transport.abort()

    def _refuse(self, status: int, code: str, message: str) -> None:
        """Reject input that is not a valid request, after the responses that are due before it."""
        self._deaf = True
        self._refusal = self._server.refusal(status, code, message, Headers(dict(self._fields)))
        if not self._answering:
            self._write_whole(None, self._refusal)
            self._close_gently()

    def _close_gently(self) -> None:
        """Close gracefully: a close with unread input would become a reset, and the last response could be lost."""
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
        """Close after the client has read the written bytes, within `send_timeout`."""
        self._transport.close()
        self._await_taking("closing")

    def hurry(self, lull: float, patience: float) -> None:
        """Prepare for the drain: an idle connection closes unless a request arrives within `lull` seconds."""
        if not self._answering and self.phase in ("idle", "linger"):
            self.deadline = min(self.deadline, self._server.loop.time() + lull)

    @property
    def spare(self) -> bool:
        """Whether the connection may yield its slot: it is idle, lingers, or has received only a partial head."""
        phase = self.phase in ("idle", "head", "linger")
        return phase and not self._queue and not self._transport.get_write_buffer_size()

    def give_way(self) -> None:
        self._deaf = True
        self._transport.abort()

    def end_requests(self) -> set[asyncio.Task[None]]:
        """Cut the request in progress. Returns its task."""
        if self._task is None or not self._answering or self._task.done():
            return set()
        self._task.cancel()
        return {self._task}

    def abort(self) -> asyncio.Task[None] | None:
        """Drop the connection now. Returns its task, which is being cancelled."""
        task, self._task = self._task, None  # a second cancel, in `connection_lost`, would interrupt the cleanup
        self._transport.abort()
        if task is not None:
            task.cancel()
        return task


def _persistence(incoming: Incoming) -> bytes:
    """The Connection field; empty if the value is the default of the version."""
    if not incoming.keep_alive:
        return b"connection: close\r\n"
    return b"" if incoming.http11 else b"connection: keep-alive\r\n"
