"""The client's half of one call of Envoy: the request to the fronts, and their response to Envoy."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from adapters.http1.connection import Connection
from adapters.http1.host import Host
from adapters.http1.stream_transport import Field, StreamTransport

UNREAD = 64 * 1024
"""Bytes of a request that the fronts have not read, above which Envoy must wait."""


class Responder(Protocol):
    """The call of Envoy, as this half uses it."""

    def respond(self, fields: Sequence[Field]) -> None:
        """Begin the response."""

    def respond_body(self, body: bytes, *, last: bool) -> bool:
        """Send a piece of the response. Returns whether there is room for more."""

    def respond_never(self) -> None:
        """Break the response off."""


class ClientHalf:
    """A request on its way to the fronts: the owner of one HTTP/1.1 connection without a socket."""

    def __init__(self, responder: Responder, host: Host, peer: str) -> None:
        self.transport = asyncio.Transport(extra={"peername": (peer, 0)})
        self.begun = False
        """Whether the response has begun."""
        self.ended = False
        """Whether Envoy has the whole response."""
        self._responder = responder
        self._loop = host.loop
        self._unread = 0
        self._read = asyncio.Event()
        self._flushing = False
        self._full = False
        self._stream = StreamTransport(self, 1, Connection(host))

    # ── the request ───────────────────────────────────────────────────────────────────────────────────

    def request(self, fields: Sequence[Field], *, last: bool) -> None:
        """Receive the head of the request. Raises `NoRequest`."""
        self._stream.request([field for field in fields if field[0] != b"content-length"], last=last)

    async def body(self, data: bytes, *, last: bool) -> None:
        """Receive a piece of the request. Waits while the fronts are slow."""
        if data:
            self._unread += len(data)
            self._stream.body(data)
        if last:
            self._stream.body_ended()
            return
        while self._unread > UNREAD and not self._stream.lost and not self.begun:
            self._read.clear()
            await self._read.wait()

    def read(self, stream_id: int, size: int) -> None:
        self._unread -= size
        self._read.set()

    # ── the response ──────────────────────────────────────────────────────────────────────────────────

    def send_headers(self, stream: StreamTransport, fields: list[Field]) -> None:
        self.begun = True
        self._read.set()
        self._responder.respond(fields)

    def send(self, stream: StreamTransport) -> None:
        """Send once in each turn of the loop, so that a short response needs one message."""
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        stream = self._stream
        if self._full or self.ended or stream.lost:
            return
        data = bytes(stream.pending)
        stream.pending.clear()
        self.ended = stream.ended
        if data or stream.ended:
            self._full = not self._responder.respond_body(data, last=stream.ended)
        if not self._full:
            stream.taken()

    def room(self) -> None:
        """Continue the response: Envoy has read the pieces before."""
        self._full = False
        self._flush()

    def close_soon(self, stream: StreamTransport) -> None:
        if not stream.ended and not stream.lost:
            self._responder.respond_never()

    def lose(self) -> None:
        """End the half after the end of the call."""
        self._stream.lose()
        self._read.set()
