"""A request whose body is still being received, and the checks of its head."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from adapters.assembly import LARGE, Assembly
from adapters.errors import CallerError, InferenceError, TooLarge
from adapters.http1.budget import COPIES, FREE_BYTES, STEP, Budget
from adapters.http1.message import Headers, Request
from adapters.wire import compression

# Checks a request's head by the rules of RFC 9110 and 9112 that llhttp does not check.

Fields = dict[bytes, bytes]

# Two parsers may interpret a repetition of these fields differently.
SINGLE_FIELDS = frozenset(
    {b"host", b"content-type", b"authorization", b"content-length", b"transfer-encoding", b"expect"}
)
HOST_CHARACTERS = b"".join(b"%c" % c for c in range(0x21, 0x7F) if c not in b'"#/<>?@\\^`{|}')
ABSOLUTE_FORM = re.compile(rb"https?://[^/?#]+", re.IGNORECASE)


class HeadRefused(Exception):
    """Rejects a request from within a parser callback: llhttp stops and reports this error as its context."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code
        self.message = message


def merged_fields(received: Sequence[tuple[bytes, bytes]]) -> Fields:
    """Return the fields by name; repeated ones are joined with a comma. Raises `HeadRefused` if one is ambiguous."""
    fields = dict(received)
    if len(fields) == len(received):
        return fields
    fields = {}
    for name, value in received:
        if name not in fields:
            fields[name] = value
        elif name in SINGLE_FIELDS:
            raise HeadRefused(400, "duplicate_header", f"The header {name.decode('latin-1')} is given twice.")
        else:
            fields[name] += b", " + value
    return fields


def check_head(version: str, method: bytes, fields: Fields) -> bool:
    """Check a head. Returns whether the version is HTTP/1.1. Raises `HeadRefused` for a violation of the standard."""
    http11 = bool(version == "1.1")
    if not http11 and version != "1.0":
        raise HeadRefused(505, "http_version_not_supported", "Only HTTP/1.1 and HTTP/1.0 are served.")
    if http11 and b"host" not in fields:
        raise HeadRefused(400, "missing_host", "The Host header is missing.")
    if fields.get(b"host", b"").translate(None, HOST_CHARACTERS):
        raise HeadRefused(400, "bad_host", "The Host header is not a host.")
    encoding = fields.get(b"transfer-encoding")
    if encoding is not None and not (http11 and encoding.rstrip(b" \t").lower() == b"chunked"):
        raise HeadRefused(501, "unsupported_transfer_encoding", "The only transfer encoding is chunked, on HTTP/1.1.")
    if b"expect" in fields and fields[b"expect"].lower() != b"100-continue":
        raise HeadRefused(417, "expectation_failed", "The only expectation is 100-continue.")
    if method == b"CONNECT":
        raise HeadRefused(400, "bad_target", "This server is not a proxy.")
    return http11


def path_of(target: bytes) -> bytes:
    """Return the path and query of a target. A server must accept the absolute form, too (RFC 9112 3.2.2)."""
    if target.startswith(b"/"):
        return target
    absolute = ABSOLUTE_FORM.match(target)
    if absolute is None:
        raise HeadRefused(400, "bad_target", "The request target must be a path.")
    path = target[absolute.end() :]
    return path if path.startswith(b"/") else b"/" + path


INFLATE_INLINE = 512
"""Compressed bytes above which a body is decoded in a thread."""
SMALL_PIECE = 4 * 1024
"""Bytes below which a piece of a body is appended to the previous piece."""


class BodySource(Protocol):
    """A connection, as its requests use it."""

    peer: str

    @property
    def budget(self) -> Budget: ...

    @property
    def max_body(self) -> int: ...

    def peer_certificate(self) -> Mapping[str, Any] | None:
        """The client's certificate, verified by TLS; None without a certificate."""

    async def receive_body(self, incoming: "Incoming") -> None:
        """Wait until the body of `incoming` is complete or has an error."""

    async def receive_piece(self, incoming: "Incoming") -> None:
        """Wait until a piece of the body has arrived, or until its end or an error."""


class Incoming(Request):
    """The connection's view of one request: received bytes, error, persistence. Front doors use the base class."""

    __slots__ = (
        "_assembly", "_charged", "body", "budget", "complete", "connection", "error", "expects_continue", "http11",
        "in_pieces", "keep_alive", "limit", "_paid", "length", "size", "read_started",
    )  # fmt: skip

    def __init__(self, connection: BodySource, method: str, target: bytes, fields: Fields, *, http11: bool) -> None:
        super().__init__(method, target, Headers(fields), connection.peer)
        self.connection = connection
        self.budget: Budget = connection.budget
        self._charged = 0
        self._paid = FREE_BYTES  # the size that the body may reach without another charge
        self.http11 = http11
        self.keep_alive = True
        self.expects_continue = http11 and b"expect" in fields
        self.body: list[bytes | bytearray] = []
        self._assembly: Assembly | None = None  # of a large body
        self.length = 0  # the Content-Length
        self.size = 0
        self.complete = False
        self.read_started = False
        self.limit = connection.max_body
        self.in_pieces = False  # the handler takes the pieces as they arrive
        self.error: InferenceError | None = None

    def take(self, piece: bytes) -> bool:
        """Add a piece of the body. Returns False if the body has an error."""
        self.size += len(piece)
        if self.error is not None:
            return False
        try:
            if self.size > self.limit:
                raise too_large(self.limit)
            if self.read_started and self.size > self._paid:
                self._pay(self.size + STEP)
        except InferenceError as error:
            self.error = error
            self.body.clear()
            self._assembly = None
            return False
        self._add(piece)
        return True

    def _add(self, piece: bytes) -> None:
        """Store a piece. Small pieces are joined at once: the overhead of each piece exceeds its bytes."""
        body = self.body
        if self.in_pieces:
            body.append(piece)
        elif self._assembly is not None:
            self._assembly.add(piece)
        elif self.size > LARGE:
            self._assembly = Assembly([*body, piece])
            body.clear()
        elif not body or len(piece) >= SMALL_PIECE:
            body.append(piece)
        elif isinstance(body[-1], bytearray):
            body[-1] += piece
        else:
            body.append(bytearray(piece))

    @property
    def pending(self) -> bool:
        return not self.complete

    def charge_to(self, budget: Budget) -> None:
        before, self.budget = self.budget, budget
        if self._charged:  # the body was read before its tenant was known
            before.give(self._charged)
            charged, self._charged = self._charged, 0
            budget.take(charged)
            self._charged = charged

    def _pay(self, size: int) -> None:
        """Reserve memory for a body of `size` bytes. Raises `InferenceError`."""
        if size > self._paid:
            charge = COPIES * size - self._charged
            self.budget.take(charge)
            self._charged += charge
            self._paid = size

    def release(self) -> None:
        """Release the reserved memory at the end of the exchange."""
        if self._charged:
            self.budget.give(self._charged)
            self._charged = 0

    async def read(self) -> bytes:
        if self.complete and len(self.body) == 1 and self.size <= FREE_BYTES and self.error is None:
            piece = self.body[0]
            if type(piece) is bytes and not self.encoded:  # a small body that arrived at once: nothing to pay or join
                self.budget.check()
                return piece
        body = await self.read_encoded()
        return await self.decoded(body) if self.encoded else body

    async def read_encoded(self) -> bytes:
        self.budget.check()
        if self.error is None:
            self._pay(max(self.length, self.size))
        if not self.complete and self.error is None:
            self.read_started = True
            await self.connection.receive_body(self)
        if self.error is not None:
            raise self.error
        if self._assembly is not None:
            self.body, self._assembly = [self._assembly.finish()], None
        elif len(self.body) != 1 or isinstance(self.body[0], bytearray):
            self.body = [b"".join(self.body)]  # frees the pieces
        return bytes(self.body[0])

    @property
    def unread(self) -> int:
        """Received bytes that the handler of a body in pieces has not taken."""
        return sum(map(len, self.body))

    async def pieces(self) -> AsyncIterator[bytes]:
        self.budget.check()
        if self.encoded:
            raise CallerError("Send this body without a `content-encoding`.", code="unsupported_content_encoding")
        self.in_pieces = True
        while True:
            if self.error is not None:
                raise self.error
            body, self.body = self.body, []
            for piece in body:
                yield bytes(piece)
            if not body:
                if self.complete:
                    return
                await self.connection.receive_piece(self)

    async def decoded(self, body: bytes) -> bytes:
        coding = self.headers.raw.get(b"content-encoding")
        if coding is None:
            return body
        limit = self.connection.max_body
        if len(body) <= INFLATE_INLINE:
            data = compression.decompress(body, coding.decode("latin-1"), limit)
        else:
            data = await asyncio.to_thread(compression.decompress, body, coding.decode("latin-1"), limit)
        self._pay(len(body) + len(data))
        return data

    @property
    def peer_certificate(self) -> Mapping[str, Any] | None:
        return self.connection.peer_certificate()


def too_large(limit: int) -> TooLarge:
    return TooLarge(f"The body exceeds {limit} bytes.")
