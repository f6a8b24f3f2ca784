"""gRPC client with a pool of connections to one endpoint."""

from __future__ import annotations

import asyncio
import math
import random
import ssl
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from adapters.errors import DeadlineError, TransportError, Unavailable, UpstreamTimeout
from adapters.http1.client import AGE_JITTER
from adapters.http1.sweeper import NEVER, sweeper
from adapters.http2.connection import for_http2
from adapters.http2.dialled import Dialled
from adapters.http2.exchange import Exchange, Unprocessed
from adapters.http2.fields import encode
from adapters.http2.inbox import ENCODINGS
from adapters.http2.status import Metadata, encode_metadata, encode_timeout
from adapters.types import Deadline

MiB = 1024 * 1024
MAX_HEADS = 1024
MAX_TRIES = 4
NO_DEADLINE = Deadline(NEVER, NEVER, NEVER)


def encode_fields(metadata: Metadata) -> bytes:
    """Encode the metadata of a call. Raises `ValueError` for metadata that no field can carry."""
    return encode(encode_metadata(metadata))


@lru_cache(maxsize=512)
def _timeout_field(tenths: int) -> bytes:
    return encode([(b"grpc-timeout", encode_timeout(tenths / 10))])


def _timeout(left: float) -> bytes:
    if left == math.inf:
        return b""
    if left > 1:
        return _timeout_field(math.ceil(left * 10))
    return encode([(b"grpc-timeout", encode_timeout(left))])


def _seen(task: asyncio.Task[None]) -> None:
    """Retrieve the exception of a task, because no waiter may be left to retrieve it."""
    if not task.cancelled():
        task.exception()


class Channel:
    """A gRPC client of one address: `http://`, `https://` or `unix:/path`.

    Calls share at most `max_connections` connections with `max_streams` calls each. A call above this limit fails with
    `Unavailable`: waiting belongs in a queue with a bound and a policy. The TLS context is changed to offer only
    HTTP/2. `server_name` is the name that the server's certificate must have, if this is not the host of the URL.
    Every call carries `fields` (`encode_fields`), for example credentials.
    """

    def __init__(
        self,
        url: str,
        *,
        tls: ssl.SSLContext | None = None,
        connect_timeout: float = 5.0,
        max_connections: int = 16,
        max_streams: int = 128,
        max_message: int = 64 * MiB,
        server_name: str | None = None,
        fields: bytes = b"",
        max_age: float | None = None,
    ) -> None:
        self._max_age = max_age
        self._unix_path = url.removeprefix("unix:") if url.startswith("unix:") else None
        parts = urlsplit("http://localhost" if self._unix_path else url)
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._tls = for_http2(tls or ssl.create_default_context()) if parts.scheme == "https" else None
        self._server_name = (server_name or self._host) if self._tls else None
        self._authority = parts.netloc.rpartition("@")[2].encode("ascii", "replace")
        self._scheme = parts.scheme.encode()
        self._fields = fields
        self._heads: dict[bytes, bytes] = {}
        self._connect_timeout = connect_timeout
        self._max_connections = max_connections
        self._max_streams = max_streams
        self._max_message = max_message
        self._loop = asyncio.get_running_loop()
        self._open: set[Dialled] = set()  # all connections until they are lost
        self._usable: list[Dialled] = []
        self._dialling: asyncio.Task[None] | None = None
        self._closed = False
        self._sweeper = sweeper(self._loop)

    def now(self) -> float:
        """The time of the loop, which deadlines use."""
        return self._loop.time()

    @property
    def connections(self) -> int:
        """The number of connections that accept calls."""
        return len(self._usable)

    # ── calls ─────────────────────────────────────────────────────────────────────────────────────────

    async def unary(
        self, path: bytes, message: bytes, metadata: bytes = b"", deadline: Deadline = NO_DEADLINE
    ) -> bytes:
        """Send a request with one message and return the only message of the response.

        `metadata` are encoded fields (`encode_fields`). Raises `GrpcError` for a status that is not OK, and an
        `InferenceError` if the upstream is unreachable, fails or is late. A call that the upstream reports as
        unprocessed is retried, with at most `MAX_TRIES` attempts.
        """
        return (await self.request(path, message, metadata, deadline))[0]

    async def request(
        self, path: bytes, message: bytes, metadata: bytes = b"", deadline: Deadline = NO_DEADLINE
    ) -> tuple[bytes, Mapping[str, str]]:
        """Like `unary`, but also return the trailers of the response."""
        for _ in range(MAX_TRIES - 1):
            try:
                return await self._request(path, message, metadata, deadline)
            except Unprocessed:
                pass
        return await self._request(path, message, metadata, deadline)

    async def _request(
        self, path: bytes, message: bytes, metadata: bytes, deadline: Deadline
    ) -> tuple[bytes, Mapping[str, str]]:
        exchange, block = await self._open_call(path, metadata, deadline)
        try:
            exchange.request(block, message)
            return await exchange.answer(), exchange.trailers
        finally:
            exchange.cancel()

    async def stream(self, path: bytes, metadata: bytes = b"", deadline: Deadline = NO_DEADLINE) -> Exchange:
        """Begin a call with any number of messages in both directions. Read it to its end or cancel it."""
        exchange, block = await self._open_call(path, metadata, deadline)
        exchange.begin(block)
        return exchange

    async def open_stream(
        self, path: bytes, message: bytes, metadata: bytes = b"", deadline: Deadline = NO_DEADLINE
    ) -> Exchange:
        """Send a request with one message, for a response of several. Read it to its end or cancel it."""
        exchange = await self.stream(path, metadata, deadline)
        try:
            await exchange.write(message)
            exchange.half_close()
        except BaseException:
            exchange.cancel()
            raise
        return exchange

    async def _open_call(self, path: bytes, metadata: bytes, deadline: Deadline) -> tuple[Exchange, bytes]:
        """Open a stream. Returns it and the header block, which the caller must write next."""
        connection = self._pick() or await self._connected(deadline)
        now = self._loop.time()
        exchange = connection.open(deadline, now)
        if self._closed:
            connection.retire()
        return exchange, self._head(path) + metadata + _timeout(deadline.at - now)

    def _head(self, path: bytes) -> bytes:
        """The encoded fields that all calls of a path share. The cache is small: a service has few methods."""
        head = self._heads.get(path)
        if head is None:
            if len(self._heads) >= MAX_HEADS:  # the clients of an app supply arbitrary method names
                self._heads.clear()
            head = self._heads[path] = encode([
                (b":method", b"POST"), (b":scheme", self._scheme), (b":path", path), (b":authority", self._authority),
                (b"te", b"trailers"), (b"content-type", b"application/grpc"), (b"user-agent", b"headrace"),
                (b"grpc-accept-encoding", ENCODINGS),
            ]) + self._fields  # fmt: skip
        return head

    # ── connections ───────────────────────────────────────────────────────────────────────────────────

    def _pick(self) -> Dialled | None:
        now = self._loop.time()
        for connection in tuple(self._usable):
            if now >= connection.retires_at:
                connection.retire()  # calls in progress end on it
            elif connection.has_room:
                return connection
        return None

    async def _connected(self, deadline: Deadline) -> Dialled:
        """Wait for a connection with room. All waiting calls share the connection that is being opened."""
        left = deadline.at - self._loop.time()
        try:
            async with asyncio.timeout(min(self._connect_timeout, left)):
                while (connection := self._pick()) is None:
                    await self._dialled()
        except TimeoutError:
            # Compare the two limits, not the clock: a timer may fire a millisecond early.
            if left <= self._connect_timeout:
                raise DeadlineError("The request's deadline has passed.") from None
            raise UpstreamTimeout("The upstream did not accept a connection in time.") from None
        except (OSError, ssl.SSLError):
            raise TransportError("The upstream could not be reached.") from None
        return connection

    async def _dialled(self) -> None:
        if self._dialling is None:
            if len(self._usable) >= self._max_connections:
                raise Unavailable("Every connection to the upstream is in use.").because("upstream_connections")
            self._dialling = self._loop.create_task(self._dial())
            self._dialling.add_done_callback(_seen)
        await asyncio.shield(self._dialling)

    async def _dial(self) -> None:
        try:
            async with asyncio.timeout(self._connect_timeout):
                connection = await self._connect()
                self._open.add(connection)
                self._sweeper.watch(self._open)
                try:
                    await connection.greeted
                except BaseException:
                    connection.abort()
                    raise
            if connection.retired:
                raise ConnectionResetError
            if self._max_age is not None:
                connection.retires_at = self._loop.time() + self._max_age * random.uniform(1 - AGE_JITTER, 1)
            self._usable.append(connection)
        finally:
            self._dialling = None

    async def _connect(self) -> Dialled:
        def protocol() -> Dialled:
            return Dialled(self._loop, self._max_message, self._max_streams, self)

        if self._unix_path is not None:
            transport, connection = await self._loop.create_unix_connection(protocol, self._unix_path)
        else:
            transport, connection = await self._loop.create_connection(
                protocol, self._host, self._port, ssl=self._tls, server_hostname=self._server_name
            )
        if transport.is_closing():
            raise ConnectionResetError
        return connection

    def retired(self, connection: Dialled) -> None:
        """Remove a connection that accepts no further calls."""
        if connection in self._usable:
            self._usable.remove(connection)

    def lost(self, connection: Dialled) -> None:
        """Remove a lost connection."""
        self._open.discard(connection)

    async def aclose(self) -> None:
        """Close idle connections now and active connections after their last call.

        A call that began before its endpoint was removed may still send another attempt through this channel.
        """
        self._closed = True
        for connection in list(self._usable):
            connection.retire()
