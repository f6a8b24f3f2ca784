"""The upstream's half of one call of Envoy: the picked endpoint, the adapter's request and the upstream's response."""

import asyncio
import ipaddress
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Protocol
from urllib.parse import urlsplit

from adapters.errors import TransportError, Unsupported
from adapters.http1.relay import RELAY, RelayedExchange
from adapters.http1.stream_transport import CONNECTION_FIELDS, NAME, VALUE
from adapters.http1.sweeper import sweeper
from adapters.http2.status import Code, GrpcError
from adapters.types import Deadline
from adapters.wire.decoding import whole_number
from adapters.wire.ext_proc import Field

_PORTS = {"http": 80, "https": 443}
ENVOY_FIELDS = (b":", b"x-envoy-", b"x-forwarded-")
"""Prefixes of fields that Envoy needs or adds. All other fields of the client end here, as in any request."""
BY_UPSTREAM = b"x-envoy-upstream-service-time"
"""The field that Envoy adds to the response of an upstream, but not to a response of its own."""


@lru_cache(maxsize=4096)
def destination(url: str) -> str | None:
    """The address of an endpoint's URL; None for a URL with a name, and for a Unix socket: Envoy looks up no names."""
    parts = urlsplit(url)
    port = _PORTS.get(parts.scheme)
    if port is None or parts.hostname is None:
        return None
    try:
        address = ipaddress.ip_address(parts.hostname)
    except ValueError:
        return None
    host = f"[{address}]" if address.version == 6 else str(address)
    return f"{host}:{parts.port or port}"


@lru_cache(maxsize=4096)
def _normalized(address: str) -> str | None:
    return destination(f"http://{address}")


class Subset:
    """The endpoints that a proxy permits for a request; all of them by default."""

    __slots__ = ("_permitted",)

    def __init__(self, addresses: Iterable[str] | None) -> None:
        self._permitted = None if addresses is None else frozenset(map(_normalized, addresses))

    def __contains__(self, url: object) -> bool:
        address = destination(url) if isinstance(url, str) else None
        return address is not None and (self._permitted is None or address in self._permitted)


class Forwarder(Protocol):
    """The call of Envoy, as this half uses it."""

    expiring: set[RelayedExchange]

    async def forward(
        self, fields: Sequence[Field], removed: Sequence[str], body: bytes, destinations: Sequence[str]
    ) -> None:
        """Send the request of the adapter to the first of the destinations that Envoy reaches."""


class UpstreamHalf(asyncio.Transport):
    """The relay of one request, and the transport of its response.

    `served` is the address that answered, as Envoy reports it; empty without a report.
    """

    def __init__(
        self, forwarder: Forwarder, request: Sequence[Field], subset: Subset, *, bodiless: bool, alternatives: int = 0
    ) -> None:
        super().__init__()
        self.alternatives = alternatives
        self.bodiless = bodiless
        """Whether the request has no body."""
        self.sent = False
        self.served = ""
        self.names: list[str] | None = None
        """The names of the response's fields, once its head has arrived."""
        self.ended = False
        """Whether the whole response has arrived."""
        self.empty = False
        """Whether the response has no body, so that Envoy accepts no body for it."""
        self._forwarder = forwarder
        self._request = dict(request)
        self._subset = subset
        self._destinations: list[str] = []
        self._response: RelayedExchange | None = None
        self._resumed = asyncio.Event()
        self._resumed.set()

    # ── the request ───────────────────────────────────────────────────────────────────────────────────

    def admits(self, url: str) -> bool:
        """See `adapters.http1.relay.Relay`."""
        return url in self._subset

    def has_served(self, url: str) -> bool:
        """See `adapters.http1.relay.Relay`."""
        return destination(url) == self.served

    @contextmanager
    def carrying(self, urls: Sequence[str]) -> Iterator[None]:
        """See `adapters.http1.relay.Relay`."""
        self._destinations = [to for url in urls if (to := destination(url)) is not None]
        token = RELAY.set(self)
        try:
            yield
        finally:
            RELAY.reset(token)

    async def exchange(
        self, method: bytes, target: bytes, fields: bytes, body: bytes, deadline: Deadline
    ) -> RelayedExchange:
        """Send the adapter's request through Envoy. Returns when the head of the response has arrived."""
        if self.sent or method != self._request.get(b":method"):
            raise Unsupported("This request needs other requests to its server, and Envoy sends only the client's own.")
        self.sent = True
        loop = asyncio.get_running_loop()
        response = self._response = RelayedExchange(loop, self)
        response.open(deadline)
        self._forwarder.expiring.add(response)
        sweeper(loop).watch(self._forwarder.expiring)
        await self._forwarder.forward(*self._mutation(target, fields, body), body, self._destinations)
        await response.begun()
        return response

    def _mutation(self, target: bytes, fields: bytes, body: bytes) -> tuple[list[Field], list[str]]:
        """The fields to set and to remove, so that the upstream receives the fields of the adapter only."""
        lines = [line.partition(b": ") for line in fields.split(b"\r\n") if line]
        new = [(name.lower(), value) for name, _, value in lines]
        if target != self._request.get(b":path"):
            new.append((b":path", target))
        if body:
            new.append((b"content-length", b"%d" % len(body)))
        names = {name for name, _ in new}
        removed = [name for name in self._request if name not in names and not name.startswith(ENVOY_FIELDS)]
        return new, [name.decode("latin-1") for name in removed]

    # ── the response ──────────────────────────────────────────────────────────────────────────────────

    def head(self, fields: Sequence[Field], *, last: bool) -> None:
        """Receive the head of the response. Raises `GrpcError` for a head that is not valid HTTP."""
        response, given = self._response, dict(fields)
        assert response is not None
        status = given.get(b":status", b"")
        if whole_number(status, 200, 599) is None:
            raise GrpcError(Code.INVALID_ARGUMENT, "The response has no status.")
        self.names = [name.decode("latin-1") for name in given if not name.startswith(b":")]
        self.ended = self.empty = last
        if status in (b"503", b"504") and BY_UPSTREAM not in given and given.get(b"content-type") == b"text/plain":
            response.fail(TransportError("The endpoint could not be reached."))
            return
        lines = [b"HTTP/1.1 %b \r\n" % status]
        for name, value in fields:
            if name.startswith(b":") or name in CONNECTION_FIELDS or name == b"content-length":
                continue
            if not NAME.fullmatch(name) or not VALUE.fullmatch(value):
                raise GrpcError(Code.INVALID_ARGUMENT, "A field of the response is not valid.")
            lines.append(b"%b: %b\r\n" % (name, value))
        lines.append(b"content-length: 0\r\n\r\n" if last else b"transfer-encoding: chunked\r\n\r\n")
        response.data_received(b"".join(lines))

    async def body(self, data: bytes, *, last: bool) -> None:
        """Receive a piece of the body. Waits while the adapter is slow."""
        if (response := self._response) is None:
            return
        if data:
            response.data_received(b"%x\r\n%b\r\n" % (len(data), data))
        if last:
            self.end()
        elif not self._resumed.is_set():
            await self._resumed.wait()

    def end(self) -> None:
        """Receive the end of the response."""
        if not self.ended and self._response is not None:
            self.ended = True
            self._response.data_received(b"0\r\n\r\n")

    def lose(self) -> None:
        """End the half: Envoy reports nothing more."""
        response, self._response = self._response, None
        self._resumed.set()
        if response is not None:
            self._forwarder.expiring.discard(response)
            response.connection_lost(ConnectionResetError())

    # ── the interface of a transport ──────────────────────────────────────────────────────────────────

    def pause_reading(self) -> None:
        self._resumed.clear()

    def resume_reading(self) -> None:
        self._resumed.set()

    def is_closing(self) -> bool:
        return self._response is None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def close(self) -> None:
        """Discard the rest of the response."""
        self._resumed.set()

    def abort(self) -> None:
        """Discard the rest of the response."""
        self._resumed.set()
