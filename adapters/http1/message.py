"""The HTTP types that a handler uses: a request, its headers, a response."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import unquote

from adapters import native
from adapters.http1.budget import Budget

ONE_WRITE = 64 * 1024
"""Bytes of a body above which a copy next to its head costs more than a second write."""
STATUS_LINES = {s.value: b"HTTP/1.1 %d %b\r\n" % (s.value, s.phrase.encode()) for s in HTTPStatus}


@lru_cache(maxsize=1024)
def _encoded(name: str) -> bytes:
    """Encode a field name. The cache suffices: names come only from code and configuration."""
    return name.encode("latin-1", "replace")


class Headers(Mapping[str, str]):
    """Header fields by lower-case name; repeated fields are joined with a comma (RFC 9110 5.3).

    The values stay bytes because most of them are never read.
    """

    __slots__ = ("raw",)

    def __init__(self, raw: dict[bytes, bytes]) -> None:
        self.raw = raw

    def __getitem__(self, name: str) -> str:
        return self.raw[_encoded(name)].decode("latin-1")

    def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]
        value = self.raw.get(_encoded(name))
        return default if value is None else value.decode("latin-1")

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and _encoded(name) in self.raw  # `Mapping` would raise and catch a KeyError

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self.raw)

    def __len__(self) -> int:
        return len(self.raw)


class Request:
    """One request. `path` is percent-decoded, `target` is the path as received.

    This class has no body and no certificate; the subclass of a connection may have both.
    """

    __slots__ = ("headers", "method", "peer", "query", "target")
    length: int = 0
    """The declared bytes of the body; 0 if they are unknown."""
    size: int = 0
    """The received bytes of the body."""

    def __init__(self, method: str, target: bytes, headers: Headers, peer: str) -> None:
        self.method = method
        self.target, _, query = target.partition(b"?")
        self.query = query.decode("latin-1")
        self.headers = headers
        self.peer = peer

    @property
    def path(self) -> str:
        return unquote(self.target.decode("latin-1"), errors="replace")

    @property
    def received_target(self) -> bytes:
        """The path as the client wrote and signed it."""
        return self.target

    @property
    def peer_certificate(self) -> Mapping[str, Any] | None:
        """The client's verified certificate, in the form of `ssl.SSLSocket.getpeercert`; None without a certificate."""
        return None

    @property
    def pending(self) -> bool:
        """Whether the body is still incomplete."""
        return False

    @property
    def encoded(self) -> bool:
        """Whether the body has a `content-encoding`."""
        return b"content-encoding" in self.headers.raw

    def charge_to(self, budget: Budget) -> None:
        """Charge the bytes of the body to `budget` until the end of the exchange, also those that have been read.

        Raises `InferenceError` if they do not fit.
        """

    async def read(self) -> bytes:
        """Read the whole body and decode it.

        Raises `InferenceError`: `TooLarge` above the limit, `CallerError` if the body is malformed, too slow, or in an
        unknown coding, and the error of the budget if the memory is exhausted.
        """
        return await self.decoded(await self.read_encoded())

    async def read_encoded(self) -> bytes:
        """Read the whole body without decoding it."""
        return b""

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives; the client waits while the handler is busy. Raises like `read`.

        Only for paths of `Limits.uploads`: the memory of a process holds no such body.
        """
        yield await self.read()

    async def decoded(self, body: bytes) -> bytes:
        """Decode the `content-encoding` of a body."""
        return body


class BodyStream(Protocol):
    """A body that is still being produced. The server calls `aclose` exactly once, in every case."""

    def __aiter__(self) -> "BodyStream": ...

    async def __anext__(self) -> bytes: ...

    async def aclose(self) -> None: ...


Writer = Callable[[bytes], bool]
"""Writes a piece of a body at once. Returns False, and writes nothing, if the client reads too slowly or is gone."""


class Response:
    """A response. A body of `bytes` is sent with a content-length, a stream in chunks.

    `write_to` offers a stream the writer of its connection: the stream may pass a piece to it instead of returning the
    piece, as long as the connection waits for the next piece.
    """

    __slots__ = ("body", "headers", "status", "write_to")

    def __init__(self, status: int, headers: Sequence[tuple[str, str]] = (), body: "bytes | BodyStream" = b"") -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.write_to: Callable[[Writer], None] | None = None


Handler = Callable[[Request], Awaitable[Response]]
NO_HEADERS = Headers({})
Refusal = Callable[[int, str, str, Headers], Response]
"""Encodes the rejection of a request before any handler runs, from `(status, code, message, headers)`: the headers
received so far."""


def plain_refusal(status: int, code: str, message: str, headers: Headers = NO_HEADERS) -> Response:
    """The `Refusal` of a server without a protocol above HTTP."""
    return Response(status, [("content-type", "text/plain; charset=utf-8")], f"{code}: {message}\n".encode())


def encode_fields(fields: Sequence[tuple[str, str]]) -> bytes:
    """Encode header fields. Raises `ValueError` for a line break, which would begin another field."""
    encoded = native.encoded_fields(fields)
    if encoded is not None:
        return encoded
    text = "".join([f"{name}: {value}\r\n" for name, value in fields])
    if text.count("\n") != len(fields) or text.count("\r") != len(fields):
        raise ValueError("a header field holds a line break")
    return text.encode("latin-1", "replace")


def encode_head(response: Response, framing: bytes, date: bytes) -> bytes:
    """Encode the status line and the fields. Raises `ValueError` like `encode_fields`."""
    line = STATUS_LINES.get(response.status) or b"HTTP/1.1 %d \r\n" % response.status
    return b"%b%b%bdate: %b\r\n\r\n" % (line, encode_fields(response.headers), framing, date)


def write_message(transport: asyncio.WriteTransport, head: bytes, body: bytes, tail: bytes = b"") -> None:
    """Write a head, a body and the end of a chunk. A large body is not copied: a copy would hold the loop."""
    if len(body) <= ONE_WRITE:
        transport.write(b"%b%b%b" % (head, body, tail))
        return
    for part in (head, body, tail):
        if part:
            transport.write(part)


class Waiter:
    """A reusable wake-up: one side awaits it, the other side wakes it, any number of times."""

    __slots__ = ("_future", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._future: asyncio.Future[None] | None = None

    def wait(self) -> asyncio.Future[None]:
        """Return a future to await at once. Not a coroutine: every piece of every stream passes here."""
        self._future = self._loop.create_future()
        return self._future

    def wake(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)
