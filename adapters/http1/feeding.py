"""The receiving half of a connection: passes a bounded number of bytes to the parser in each turn of the loop.

One read returns up to 256 KiB: thousands of small requests, or tens of thousands of chunks. A connection that parses
all of them in one turn delays every other connection.
"""

import asyncio

STRIDE = 8 * 1024
"""Bytes that are passed to the parser at once, except within a body of known length."""
TURN_BYTES = 32 * 1024
"""Bytes of heads and chunks that one connection parses in one turn of the loop."""
TURN_RECEIVED = 1024 * 1024
"""Bytes of bodies after which a connection lets a turn pass: libuv reads up to 8 MiB from one socket in one turn."""

Data = bytes | memoryview


class Feeding(asyncio.Protocol):
    """A protocol that bounds the bytes parsed in each turn of the loop.

    A subclass parses in `_feed` and may pause in any callback of its parser: the remaining bytes then wait unparsed.
    """

    __slots__ = ("_deaf", "_paused", "_received", "_rest", "_scheduled", "_stopped", "_transport", "loop")
    _transport: asyncio.Transport

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._rest: memoryview | None = None  # received but not parsed; reading of the socket is paused meanwhile
        self._deaf = False  # further input is discarded
        self._paused = False  # set by the subclass
        self._stopped = False  # reading of the transport is paused
        self._scheduled = False
        self._received = 0  # bytes in long pieces since the connection last let a turn pass

    def data_received(self, data: bytes) -> None:
        if self._rest is None and len(data) <= STRIDE:
            if not self._deaf:
                self._feed(data)
            return
        self._received += len(data)
        rest = data if self._rest is None else b"".join((self._rest, data))
        self._rest = memoryview(rest)
        if not self._scheduled:
            self._feed_rest()

    def _next_turn(self) -> None:
        self._scheduled = False
        self._received = 0
        if self._rest is None:
            self._adjust_reading()
        else:
            self._feed_rest()

    def _feed_rest(self) -> None:
        """Parse the bytes of one turn; the remainder waits for the next turn."""
        rest, self._rest = self._rest, None
        if rest is None:
            return
        at, left = 0, TURN_BYTES
        while at < len(rest) and left > 0 and not self._paused and not self._deaf:
            size = self._body_left()
            if not size:
                size = STRIDE
                left -= STRIDE
            piece = rest[at : at + size]
            at += len(piece)
            self._feed(piece)
        if at < len(rest) and not self._deaf and not self._transport.is_closing():
            self._rest = rest[at:]
        self._adjust_reading()

    def _feed_all(self) -> None:
        """Parse the whole remainder after the peer's close. The size of one read bounds the remainder."""
        rest, self._rest = self._rest, None
        if rest is not None and not self._deaf:
            self._feed(rest)

    def _feed(self, data: Data) -> None:
        """Parse `data`."""
        raise NotImplementedError

    def _body_left(self) -> int:
        """Bytes still to receive of a body of known length; 0 outside such a body."""
        return 0

    def _pause_reading(self) -> None:
        if not self._paused:
            self._paused = True
            self._adjust_reading()

    def _resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            self._adjust_reading()

    def _adjust_reading(self) -> None:
        if self._transport.is_closing():
            self._rest = None
            return
        waits = self._rest is not None or self._received > TURN_RECEIVED
        stop = self._paused or waits
        if stop is not self._stopped:
            self._stopped = stop
            if stop:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()
        if waits and not self._paused and not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._next_turn)
