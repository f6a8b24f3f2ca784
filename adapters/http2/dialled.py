"""One connection of the client, which several calls share."""

from __future__ import annotations

import asyncio
import math
from typing import Protocol

from adapters.errors import TransportError
from adapters.http2 import frames
from adapters.http2.connection import CONNECTION_WINDOW, Connection
from adapters.http2.control import check_connection_frame
from adapters.http2.exchange import MALFORMED, AnswerHead, Exchange, Unprocessed, read_answer
from adapters.http2.fields import Field
from adapters.http2.frames import CALM_PER_CALL, MAX_DATA_FRAME, ErrorCode, Violation
from adapters.http2.stream import STREAM_WINDOW, Http2Stream
from adapters.types import Deadline

MAX_HEAD = 64 * 1024
IDLE_SECONDS = 300.0
"""Time after which a connection without calls is closed. The deadlines of the calls bound all others."""
SEND_SECONDS = 60.0
GREETING = (
    frames.PREFACE
    + frames.settings_frame({
        frames.ENABLE_PUSH: 0,
        frames.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
        frames.MAX_FRAME_SIZE: MAX_DATA_FRAME,
        frames.MAX_HEADER_LIST_SIZE: MAX_HEAD,
    })
    + frames.window_update(0, CONNECTION_WINDOW - frames.DEFAULT_WINDOW)
)  # fmt: skip


class ConnectionOwner(Protocol):
    """The owner of a connection."""

    def retired(self, connection: Dialled) -> None:
        """Handle a connection that accepts no further calls."""

    def lost(self, connection: Dialled) -> None:
        """Handle the loss of a connection."""


class Dialled(Connection[AnswerHead]):
    """A client connection. `greeted` is done after the upstream's SETTINGS. If `retired`, it accepts no new call."""

    __slots__ = ("_reads_before", "_max_streams", "_next_id", "_owner", "greeted", "retired", "retires_at")
    max_head = MAX_HEAD
    send_timeout = SEND_SECONDS

    def __init__(
        self, loop: asyncio.AbstractEventLoop, max_message: int, max_streams: int, owner: ConnectionOwner
    ) -> None:
        super().__init__(loop)
        self.max_message = max_message
        self.max_held = 2**62  # unbounded: the caller has set the limit of each call and the number of calls
        self.greeted: asyncio.Future[None] = loop.create_future()
        self.retired = False
        self.retires_at = math.inf
        """The time of the loop from which it is too old for another call."""
        self._greeting = b""
        self._owner = owner
        self._max_streams = max_streams
        self._next_id = 1
        self._reads_before = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.outlet.write(GREETING)

    def _on_greeted(self) -> None:
        if not self.greeted.done():
            self.greeted.set_result(None)
        self._wait_until(self.loop.time() + IDLE_SECONDS)

    def _on_noise(self, data: bytes) -> None:
        self._on_violation(Violation(ErrorCode.PROTOCOL_ERROR, "a connection begins with SETTINGS"))

    def _apply(self, name: int, value: int) -> None:
        super()._apply(name, value)
        if name == frames.MAX_CONCURRENT_STREAMS:
            self._max_streams = min(self._max_streams, value)

    # ── calls ─────────────────────────────────────────────────────────────────────────────────────────

    @property
    def has_room(self) -> bool:
        """Whether another call may begin on this connection."""
        return len(self.streams) < self._max_streams and not self.retired

    def open(self, deadline: Deadline, now: float) -> Exchange:
        """Open a new call. The caller must write its head next."""
        stream_id = self._next_id
        self._next_id += 2
        exchange = self.streams[stream_id] = Exchange(self, stream_id, deadline, now)
        if self._next_id > frames.MAX_STREAM_ID:
            self.retire()
        return exchange

    def forget(self, stream: Http2Stream) -> None:
        super().forget(stream)
        self.forgive(CALM_PER_CALL)
        if self.retired and not self.streams:
            self.close_gently()

    def _read_head(self, fields: list[Field] | None) -> AnswerHead:
        return MALFORMED if fields is None else read_answer(fields)

    def _on_head(self, stream_id: int, head: AnswerHead, *, last: bool) -> None:
        stream = self.streams.get(stream_id)
        if isinstance(stream, Exchange):
            stream.on_head(head, last=last)
        else:
            self._check_opened(stream_id)

    def _was_reset(self, stream: Http2Stream, code: int) -> None:
        assert isinstance(stream, Exchange)
        if code == ErrorCode.REFUSED_STREAM:
            # The server counts a call longer than the client, gRPC's servers until the end of the handler's thread.
            self._max_streams = max(1, len(self.streams) - 1)
        stream.was_reset(code)

    def _check_opened(self, stream_id: int) -> None:
        if stream_id >= self._next_id or not stream_id & 1:
            raise Violation(ErrorCode.PROTOCOL_ERROR, "a frame of a stream that was never opened")

    # ── ends ──────────────────────────────────────────────────────────────────────────────────────────

    def _on_goaway(self, flags: int, stream_id: int, payload: bytes) -> None:
        check_connection_frame(stream_id, fits=len(payload) >= frames.GOAWAY_HEAD.size)
        last, _ = frames.GOAWAY_HEAD.unpack_from(payload)
        self.retire()
        for stream in [stream for id_, stream in self.streams.items() if id_ > last & frames.MAX_STREAM_ID]:
            stream.close(Unprocessed("The upstream is shutting down."))

    def retire(self) -> None:
        """Accept no further calls, and close after the last call."""
        if not self.retired:
            self.retired = True
            self._owner.retired(self)
            if not self.streams:
                self.close_gently()

    def _lapse(self, now: float) -> None:
        if self.streams or self.reads != self._reads_before:
            self._reads_before = self.reads
            self._wait_until(now + IDLE_SECONDS)
        else:
            self.retire()

    def _on_violation(self, violation: Violation) -> None:
        super()._on_violation(violation)
        self._let_go()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is None:
            self._take_all()
        self._let_go()
        super().connection_lost(exc)
        self._owner.lost(self)

    def _let_go(self) -> None:
        self.retire()
        if not self.greeted.done():
            self.greeted.set_exception(ConnectionResetError())
            self.greeted.exception()  # no waiter may be left to retrieve the exception

    def _lost(self) -> Exception:
        return TransportError("The upstream closed the connection before the end of its answer.")
