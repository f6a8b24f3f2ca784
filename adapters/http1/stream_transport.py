"""One HTTP/2 stream as the transport of an HTTP/1.1 connection: encodes requests as HTTP/1.1, responses as frames.

The HTTP/1.1 connection parses, bounds and answers the request like any other, so that no limit, timeout or rejection
is implemented twice.
"""

import asyncio
import re
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import httptools

from adapters.http1.connection import Connection

Field = tuple[bytes, bytes]
METHOD = re.compile(rb"[A-Z]{1,20}")
TARGET = re.compile(rb"[\x21-\x7e\x80-\xff]+")
NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
VALUE = re.compile(rb"[^\0\r\n]*")
CONNECTION_FIELDS = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})
HIGH_WATER = 64 * 1024
LOW_WATER = 16 * 1024


class NoRequest(Exception):
    """The fields of a stream are not a valid request (RFC 9113, 8.1.1 and 8.3)."""


def request_head(fields: Sequence[Field], *, has_body: bool) -> tuple[bytes, bool]:
    """Encode the head as HTTP/1.1. Returns the head and whether the body is chunked. Raises `NoRequest`.

    No field may contain the end of a line or of a token: it could begin another request.
    """
    pseudo = {name: value for name, value in fields if name.startswith(b":")}
    method, target = pseudo.get(b":method", b""), pseudo.get(b":path", b"")
    if not METHOD.fullmatch(method) or not TARGET.fullmatch(target) or method == b"CONNECT":
        raise NoRequest("the method or the path is not valid")
    lines: list[Field] = []
    length = False
    for name, value in fields:
        if name.startswith(b":") or name in (b"te", b"expect"):
            continue
        if not NAME.fullmatch(name) or not VALUE.fullmatch(value) or name in CONNECTION_FIELDS:
            raise NoRequest("a header field is not valid")
        if name == b"host" and b":authority" in pseudo:
            continue
        length = length or name == b"content-length"
        lines.append((name, value))
    if b":authority" in pseudo:
        if not VALUE.fullmatch(pseudo[b":authority"]):
            raise NoRequest("the authority is not valid")
        lines.insert(0, (b"host", pseudo[b":authority"]))
    chunked = has_body and not length
    if chunked:
        lines.append((b"transfer-encoding", b"chunked"))
    lines.append((b"connection", b"close"))
    return b"%b %b HTTP/1.1\r\n%b\r\n" % (method, target, b"".join(b"%b: %b\r\n" % line for line in lines)), chunked


class Owner(Protocol):
    """The HTTP/2 connection, as its streams use it."""

    transport: asyncio.Transport

    def read(self, stream_id: int, size: int) -> None:
        """Acknowledge `size` bytes of a body that the HTTP/1.1 connection has read."""

    def send_headers(self, stream: "StreamTransport", fields: list[Field]) -> None:
        """Send the head of a response."""

    def send(self, stream: "StreamTransport") -> None:
        """Send pending bytes as far as the flow-control windows and the socket permit."""

    def close_soon(self, stream: "StreamTransport") -> None:
        """Close the stream after its response, or reset a stream with an incomplete response."""


class StreamTransport(asyncio.Transport):
    """Parses the output of the HTTP/1.1 connection and sends it as frames within the client's windows."""

    def __init__(self, owner: Owner, stream_id: int, connection: Connection) -> None:
        super().__init__()
        self.id = stream_id
        self.connection = connection
        self.pending = bytearray()
        self.ended = False
        """Whether the response is complete; `pending` may hold its last bytes."""
        self.lost = False
        self.received_all = False
        self._owner = owner
        self._chunked = False
        self._is_head = False
        self._paused = False
        self._unread: list[bytes] = []  # pieces of the body that arrived while reading was paused
        self._unread_end = False
        self._writing_paused = False
        self._parser = httptools.HttpResponseParser(self)
        self._fields: list[Field] = []
        self._headers_sent = False
        connection.connection_made(self)

    # ── from the client ───────────────────────────────────────────────────────────────────────────────

    def request(self, fields: Sequence[Field], *, last: bool) -> None:
        """Pass the head of a request to the HTTP/1.1 connection. Raises `NoRequest`."""
        head, self._chunked = request_head(fields, has_body=not last)
        self._is_head = (b":method", b"HEAD") in fields
        self.received_all = last
        self.connection.data_received(head)

    def body(self, data: bytes) -> None:
        if self._paused or self._unread:
            self._unread.append(data)
        elif not self.lost:
            self.connection.data_received(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)
            self._owner.read(self.id, len(data))

    def body_ended(self) -> None:
        self.received_all = True
        if self._unread:
            self._unread_end = True
        elif self._chunked and not self.lost:
            self.connection.data_received(b"0\r\n\r\n")

    def lose(self) -> None:
        """End the stream after a reset or a disconnect of the client."""
        if not self.lost:
            self.lost = True
            self.pending.clear()
            self.connection.connection_lost(None)

    # ── from the connection: the response ─────────────────────────────────────────────────────────────

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.lost and not self.ended:
            self._parser.feed_data(data)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        for data in list_of_data:
            self.write(data)

    def on_message_begin(self) -> None:
        self._fields = []

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() not in CONNECTION_FIELDS:
            self._fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:
            self._headers_sent = True
            self._owner.send_headers(self, [(b":status", b"%d" % status), *self._fields])
            if self._is_head:
                self._end()

    def on_body(self, body: bytes) -> None:
        if not self.ended:
            self.pending += body
            self._owner.send(self)
            if len(self.pending) > HIGH_WATER and not self._writing_paused:
                self._writing_paused = True
                self.connection.pause_writing()

    def on_message_complete(self) -> None:
        if self._headers_sent:
            self._end()

    def _end(self) -> None:
        if not self.ended:
            self.ended = True
            self._owner.send(self)

    def taken(self) -> None:
        """Resume the HTTP/1.1 connection after the client has read pending bytes."""
        if self._writing_paused and len(self.pending) < LOW_WATER:
            self._writing_paused = False
            self.connection.resume_writing()

    # ── the interface of a transport ────────────────────────────────────────────────────────────────────

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._owner.transport.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        return len(self.pending)

    def is_closing(self) -> bool:
        return self.lost

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        while self._unread and not self._paused and not self.lost:
            data = self._unread.pop(0)
            self.connection.data_received(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)
            self._owner.read(self.id, len(data))
        if self._unread_end and not self._unread and not self._paused:
            self._unread_end = False
            self.body_ended()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Close the stream after the only response of the HTTP/1.1 connection."""
        self._owner.close_soon(self)

    def close(self) -> None:
        self._owner.close_soon(self)

    def abort(self) -> None:
        self._owner.close_soon(self)
