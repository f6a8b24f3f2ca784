"""What a handler sees of HTTP: a request, its headers, a response."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import unquote

from adapters.http1.budget import Budget

STATUS_LINES = {s.value: b"HTTP/1.1 %d %b\r\n" % (s.value, s.phrase.encode()) for s in HTTPStatus}


@lru_cache(maxsize=1024)
def _encoded(name: str) -> bytes:
    """Names that are looked up come from code and configuration: few, and always the same."""
    return name.encode("latin-1", "replace")


class Headers(Mapping[str, str]):
    """Header fields by lower-case name; repeated ones joined with a comma (RFC 9110 5.3).

    Kept as bytes: most are never looked at.
    """

    __slots__ = ("raw",)

    def __init__(self, raw: dict[bytes, bytes]) -> None:
        self.raw = raw

    def __getitem__(self, name: str) -> str:
        return self.raw[_encoded(name)].decode("latin-1")

    def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]
        value = self.raw.get(_encoded(name))
        return default if value is None else value.decode("latin-1")

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self.raw)

    def __len__(self) -> int:
        return len(self.raw)


class Request:
    """One request. `path` is percent-decoded, `target` is as it was sent.

    This one has no body and no certificate; what a connection receives may have both.
    """

    __slots__ = ("headers", "method", "peer", "query", "target")

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
    def peer_certificate(self) -> Mapping[str, Any] | None:
        """The client's certificate, verified, as `ssl.SSLSocket.getpeercert` gives it; None without one."""
        return None

    @property
    def pending(self) -> bool:
        """Whether a part of the body is still to come."""
        return False

    @property
    def encoded(self) -> bool:
        """Whether the body has a `content-encoding`."""
        return b"content-encoding" in self.headers.raw

    def charge_to(self, budget: Budget) -> None:
        """Let what is read count there, until the exchange is over."""

    async def read(self) -> bytes:
        """The whole body, decoded. Raises `InferenceError`: where there is no room for it, `TooLarge` over the limit,
        and `CallerError` when it is broken, too slow, or in an unknown coding."""
        return await self.decoded(await self.read_encoded())

    async def read_encoded(self) -> bytes:
        """The whole body as it was sent."""
        return b""

    async def decoded(self, body: bytes) -> bytes:
        """The body without its `content-encoding`."""
        return body


class BodyStream(Protocol):
    """A body that is still being made. The server calls `aclose` exactly once, whatever happens."""

    def __aiter__(self) -> "BodyStream": ...

    async def __anext__(self) -> bytes: ...

    async def aclose(self) -> None: ...


class Response:
    """An answer: `bytes` go out with a content-length, a stream goes out in chunks."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: Sequence[tuple[str, str]] = (), body: "bytes | BodyStream" = b"") -> None:
        self.status = status
        self.headers = headers
        self.body = body


Handler = Callable[[Request], Awaitable[Response]]
NO_HEADERS = Headers({})
Refusal = Callable[[int, str, str, Headers], Response]
"""Encodes the refusal of a request that no handler gets, from `(status, code, message, headers)`: the headers are those
received so far."""


def plain_refusal(status: int, code: str, message: str, headers: Headers = NO_HEADERS) -> Response:
    """The refusal of a server that speaks no protocol above HTTP."""
    return Response(status, [("content-type", "text/plain; charset=utf-8")], f"{code}: {message}\n".encode())


def encode_head(response: Response, framing: bytes, date: bytes) -> bytes:
    """Status line and fields. A line break in a value would be a second header: it is refused."""
    fields = "".join([f"{name}: {value}\r\n" for name, value in response.headers]).encode("latin-1", "replace")
    if fields.count(b"\n") != len(response.headers) or fields.count(b"\r") != len(response.headers):
        raise ValueError("a header value holds a line break")
    line = STATUS_LINES.get(response.status) or b"HTTP/1.1 %d \r\n" % response.status
    return b"%b%b%bdate: %b\r\n\r\n" % (line, fields, framing, date)


class Waiter:
    """A future that one side awaits and the other wakes, any number of times."""

    __slots__ = ("_future", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._future: asyncio.Future[None] | None = None

    def wait(self) -> asyncio.Future[None]:
        """To be awaited at once. No coroutine: this happens for every piece of every stream."""
        self._future = self._loop.create_future()
        return self._future

    def wake(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)
