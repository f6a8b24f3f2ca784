"""The part of a connection that client and server share: header blocks, streams, held bytes, deadlines, close."""

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any, Generic, TypeVar, cast

from adapters.http1.sweeper import NEVER, sweeper
from adapters.http2 import frames
from adapters.http2.control import ControlFrames
from adapters.http2.fields import Decoder, Field, TooManyFields
from adapters.http2.frames import MAX_OTHER_FRAME, ErrorCode, Violation, unpadded
from adapters.http2.sending import Outlet
from adapters.http2.stream import Http2Stream

CONNECTION_WINDOW = 64 * 1024 * 1024
MAX_CONTINUATIONS = 16
CACHED_BLOCKS = 16
CACHED_BLOCK_BYTES = 2048
LINGER_SECONDS = 2.0
PRIORITY_BYTES = 5

Head = TypeVar("Head")


class Connection(ControlFrames, Generic[Head]):
    """An HTTP/2 connection. `Head` is the decoded form of a header block; a subclass sets the limits."""

    __slots__ = (
        "_block", "_block_flags", "_block_stream", "_closing", "_continuations", "_decoder", "_due", "_heads",
        "_received", "_stray", "_unread", "deadline", "held", "max_head", "max_held", "max_message", "peer",
        "send_timeout",
    )  # fmt: skip
    max_head: int
    max_message: int
    max_held: int
    send_timeout: float

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.held = 0  # bytes of unread messages
        self.peer = ""
        self.deadline = NEVER  # time of the next check
        self._due = NEVER  # time of the connection's own next check
        self._closing = False
        self._unread = 0  # bytes that the peer had not read at the last check
        self._stray = 0  # bytes of DATA for closed streams since the last close of a stream
        self._received = 0  # bytes of DATA not yet returned to the peer's window
        self._decoder = Decoder()
        self._heads: dict[bytes, Head] = {}
        self._block: list[bytes] = []  # a header block that CONTINUATION frames continue
        self._block_flags = 0
        self._block_stream = 0
        self._continuations = 0

    # ── transport events ──────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.outlet = Outlet(self.loop, self.transport, self.streams)
        peer = transport.get_extra_info("peername")
        self.peer = peer[0] if isinstance(peer, tuple) else "unix"

    def connection_lost(self, exc: Exception | None) -> None:
        self._deaf = self._closing = True
        self.outlet.cut()
        self._end_streams()
        self.deadline = self._due = NEVER
        self._on_frame = ()  # breaks a reference cycle
        self._rest = b""

    def peer_certificate(self) -> Mapping[str, Any] | None:
        """The peer's certificate; None unless TLS has verified it."""
        return self.transport.get_extra_info("peercert") or None

    def pause_writing(self) -> None:
        self.outlet.pause()

    def resume_writing(self) -> None:
        self._backlog = 0
        self.outlet.resume()

    # ── frames that carry a call ──────────────────────────────────────────────────────────────────────

    def _on_data(self, flags: int, stream_id: int, data: bytes, start: int, stop: int, padding: int) -> None:
        self._received += stop - start + padding
        if self._received >= CONNECTION_WINDOW // 2:
            self.outlet.write(frames.window_update(0, self._received))
            self._received = 0
        stream = self.streams.get(stream_id)
        last = flags & frames.END_STREAM
        if start == stop and not last:
            self._spend()
        if stream is not None and not stream.received_all:
            stream.receive(data, start, stop, padding, last=bool(last))
        elif stream is not None:
            stream.break_off(ErrorCode.STREAM_CLOSED)
        else:
            self._check_opened(stream_id)
            self._stray += stop - start + padding
            if self._stray > CONNECTION_WINDOW:
                raise Violation(ErrorCode.STREAM_CLOSED, "a frame arrived on a stream that has ended")

    def _on_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        if flags & (frames.PADDED | frames.WITH_PRIORITY):
            payload = _bare(flags, payload)
        if flags & frames.END_HEADERS:
            self._on_block(flags, stream_id, payload)
        else:
            self._gathering = True
            self._block = [payload]
            self._block_flags, self._block_stream, self._continuations = flags, stream_id, 0

    def _on_continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not self._gathering or stream_id != self._block_stream:
            raise Violation(ErrorCode.PROTOCOL_ERROR, "a CONTINUATION without a header block")
        self._block.append(payload)
        self._continuations += 1
        if self._continuations > MAX_CONTINUATIONS or sum(map(len, self._block)) > MAX_OTHER_FRAME:
            raise Violation(ErrorCode.ENHANCE_YOUR_CALM, "a header block is too long")
        if flags & frames.END_HEADERS:
            block, self._block, self._gathering = b"".join(self._block), [], False
            self._on_block(self._block_flags, stream_id, block)

    def _on_block(self, flags: int, stream_id: int, block: bytes) -> None:
        head = self._heads.get(block)
        if head is None:
            head = self._read_block(block)
        self._on_head(stream_id, head, last=bool(flags & frames.END_STREAM))

    def _read_block(self, block: bytes) -> Head:
        """Decode a header block and cache its head. A block that changes the table makes all cached heads stale."""
        changes = self._decoder.changes
        try:
            head = self._read_head(self._decoder.decode(block, self.max_head))
        except TooManyFields:
            return self._read_head(None)
        if self._decoder.changes != changes:
            self._heads.clear()
        elif len(block) <= CACHED_BLOCK_BYTES:
            if len(self._heads) >= CACHED_BLOCKS:
                self._heads.clear()
            self._heads[block] = head
        return head

    def _read_head(self, fields: list[Field] | None) -> Head:
        """Convert fields into a head; None stands for a block with too many fields."""
        raise NotImplementedError

    def _on_head(self, stream_id: int, head: Head, *, last: bool) -> None:
        raise NotImplementedError

    def hold(self, size: int) -> None:
        """Count bytes of a message that has not been read yet."""
        self.held += size

    def release(self, size: int) -> None:
        self.held -= size

    # ── streams ───────────────────────────────────────────────────────────────────────────────────────

    def forget(self, stream: Http2Stream) -> None:
        """Remove a closed stream."""
        self.streams.pop(stream.id, None)
        self._stray = 0  # frames that were in transit are no violation

    def look_at(self, when: float) -> None:
        """Check the deadlines at `when` or earlier."""
        if when < self.deadline:
            self.deadline = when
            sweeper(self.loop).stir()

    @property
    def rests(self) -> bool:
        """True: `look_at` stirs."""
        return True

    def expire(self) -> None:
        """Check the deadlines of all streams and of the connection."""
        now = self.loop.time()
        due = NEVER
        for stream in list(self.streams.values()):
            due = min(due, stream.check(now))
        if self._due <= now:
            self._due = NEVER
            if self._closing:
                self._end_lingering(now)
            else:
                self._lapse(now)
        self.deadline = min(due, self._due)

    def _lapse(self, now: float) -> None:
        """Handle the end of the connection's own time limit."""
        raise NotImplementedError

    def _wait_until(self, when: float) -> None:
        self._due = when
        self.look_at(when)

    # ── ends ──────────────────────────────────────────────────────────────────────────────────────────

    def _lost(self) -> Exception:
        """The error that waiting calls receive when the connection is lost."""
        raise NotImplementedError

    def _end_streams(self) -> None:
        for stream in list(self.streams.values()):
            stream.close(self._lost())  # a new error for each stream: every raise extends a traceback

    def _last_stream(self) -> int:
        """The id of the peer's last stream that was processed."""
        return 0

    def _on_violation(self, violation: Violation) -> None:
        self.outlet.write(frames.goaway(self._last_stream(), violation.code, violation.message))
        self._end_streams()
        self.close_gently()

    def close_gently(self) -> None:
        """Close gracefully: a close with unread input would become a reset, and the last frames could be lost."""
        if self._closing:
            return
        self._closing = self._deaf = True
        self._unread = self.transport.get_write_buffer_size()
        self._wait_until(self.loop.time() + LINGER_SECONDS)
        self.outlet.flush()
        if self.transport.can_write_eof():
            try:
                self.transport.write_eof()
            except OSError:  # the peer has reset the connection
                self.transport.abort()
        else:
            self.transport.close()
        self.outlet.cut()

    def _end_lingering(self, now: float) -> None:
        """End the linger period. A peer that still reads the last bytes, however slowly, gets more time."""
        unread = self.transport.get_write_buffer_size()
        if not 0 < unread < self._unread:
            self.transport.abort()
            return
        self._unread = unread
        self._wait_until(now + LINGER_SECONDS)

    def abort(self) -> None:
        """Drop the connection now."""
        self._deaf = self._closing = True
        self.outlet.cut()
        self._end_streams()
        self.transport.abort()


def for_http2(tls: ssl.SSLContext | None) -> ssl.SSLContext | None:
    """Restrict the ALPN protocols of a TLS context to HTTP/2."""
    if tls is not None:
        tls.set_alpn_protocols(["h2"])
    return tls


def _bare(flags: int, payload: bytes) -> bytes:
    """Return a header block without padding and priority."""
    start, stop = unpadded(payload) if flags & frames.PADDED else (0, len(payload))
    if flags & frames.WITH_PRIORITY:
        start += PRIORITY_BYTES
    if start > stop:
        raise Violation(ErrorCode.FRAME_SIZE_ERROR, "a HEADERS frame is shorter than its declared contents")
    return payload[start:stop]
