"""HTTP/1.1 client with a pool of connections to one endpoint."""

import asyncio
import ssl
import zlib
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import SplitResult, urlsplit

from adapters.assembly import LARGE, Assembly
from adapters.errors import (
    BackendError,
    DeadlineError,
    InferenceError,
    TooLarge,
    TransportError,
    Unavailable,
    UpstreamTimeout,
)
from adapters.http1.exchange import Exchange, Forward
from adapters.http1.message import Headers
from adapters.http1.message import encode_fields as encode_fields  # part of the interface of clients
from adapters.http1.proxy import Proxy
from adapters.http1.relay import RELAY
from adapters.http1.signing import REFUSED, Credential, OutgoingRequest
from adapters.http1.sweeper import sweeper
from adapters.types import Deadline
from adapters.wire import decoding
from adapters.wire.compression import Inflater

# Decompresses responses: some servers and proxies compress although the client asks for no coding.


class BodyDecoder:
    """Decodes the pieces of one response with the `content-encoding` of its head."""

    __slots__ = ("_coding", "_inflater", "_started")

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._started = False
        try:
            self._inflater: Inflater | None = Inflater(coding)
        except KeyError:
            self._inflater = None

    def decode(self, piece: bytes) -> bytes:
        """Return the decoded bytes of a piece, which may be none; an empty piece is the end. Raises `BackendError`."""
        self._started = self._started or bool(piece)
        if not self._started:
            return b""  # the response has no body
        if self._inflater is None:
            raise decoding.bad_response(f"The upstream's response has the content-encoding `{self._coding[:32]}`.")
        try:
            if piece:
                return self._inflater.feed(piece)
            self._inflater.finish()
        except (zlib.error, TooLarge):
            raise decoding.bad_response(f"The upstream's response is not valid {self._coding[:32]}.") from None
        return b""


def decoder_of(headers: Headers) -> BodyDecoder | None:
    """The decoder of a response; None if it is not encoded. The headers lose what describes the encoded body."""
    coded = headers.raw.pop(b"content-encoding", None)
    if coded is None or (coding := coded.decode("latin-1").strip().lower()) in ("", "identity"):
        return None
    headers.raw.pop(b"content-length", None)
    return BodyDecoder(coding)


KEEPALIVE_SECONDS = 60.0
FRESH_SECONDS = 0.5
"""Idle time up to which a connection is used without a look at its socket."""
IDEMPOTENT = frozenset({b"GET", b"HEAD", b"PUT", b"DELETE", b"OPTIONS"})
IDENTITY = b"accept-encoding: identity\r\n"
"""Without this field a server may choose any coding (RFC 9110 12.5.3)."""
MAX_ANSWER = 64 * 1024 * 1024


class ClientResponse:
    """A response whose head has arrived. Reading the body to its end or `close` returns the connection to the pool."""

    __slots__ = ("_client", "_decoder", "_exchange", "headers", "status")

    def __init__(self, client: "Client", exchange: Exchange, headers: Headers, decoder: BodyDecoder | None) -> None:
        self._client = client
        self._decoder = decoder
        self._exchange: Exchange | None = exchange
        self.status = exchange.status
        self.headers = headers

    def take(self) -> bytes | None:
        """Return the bytes that arrived since the last call: empty at the end, None if the caller must await `more`.

        Raises `InferenceError`. `take` and `more` are plain calls, not coroutines: a stream has thousands of pieces.
        """
        if self._exchange is None:
            return b""
        try:
            data = self._exchange.take()
            while self._decoder is not None and data is not None:
                ended = not data
                if (data := self._decoder.decode(data)) or ended:
                    break
                data = self._exchange.take()
        except InferenceError:
            self.close()
            raise
        if data == b"":
            self._give_back()
        return data

    def more(self, patience: float | None = None, forward: Forward | None = None) -> Awaitable[None]:
        """Wait for the next bytes of the body, for at most `patience` seconds, except those that `forward` takes."""
        assert self._exchange is not None
        return self._exchange.more(patience, forward if self._decoder is None else None)

    async def piece(self, patience: float | None = None) -> bytes:
        """Wait for the next piece of the body and return it; empty at the end. Raises `InferenceError`."""
        try:
            while (data := self.take()) is None:
                await self.more(patience)
        except BaseException:
            self.close()
            raise
        return data

    @property
    def max_answer(self) -> int:
        """Bytes that the body may have, or one event of it."""
        return self._client.max_answer

    async def read(self, limit: int | None = None) -> bytes:
        """Read the rest of the body. Raises `BackendError` above `limit` bytes."""
        limit = self.max_answer if limit is None else limit
        if (
            self._exchange is not None
            and self._exchange.complete
            and not self._decoder
            and (whole := self._whole(limit)) is not None
        ):
            return whole
        pieces: list[bytes] = []
        assembly: Assembly | None = None  # of a large body
        size = 0
        while data := await self.piece():
            size += len(data)
            if assembly is not None:
                assembly.add(data)
            else:
                pieces.append(data)
                if size > LARGE:
                    assembly = Assembly(pieces)
                    pieces.clear()
            if self._exchange is not None and self._exchange.over and self._decoder is None:
                self._give_back()
            if size > limit:
                pieces, assembly, data = [], None, b""  # the traceback of the error refers to this frame
                self.close()
                raise BackendError("The upstream's answer is too large.")
        if assembly is not None:
            return assembly.finish()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _whole(self, limit: int) -> bytes | None:
        """A small body that arrived together with its head; None for any other body."""
        assert self._exchange is not None
        data = self._exchange.take_whole(min(limit, LARGE))
        if data is not None:
            self._give_back()
        return data

    def close(self) -> None:
        """Discard the rest of the body. Drops the connection unless the whole body has arrived."""
        self._give_back()

    def _give_back(self) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            self._client.give_back(exchange)


class Client:
    """An HTTP/1.1 client of one address: `http://`, `https://` or `unix:/path`.

    At most `max_connections` are open. A request above this limit fails with `Unavailable`: waiting belongs in a
    queue with a bound and a policy. `server_name` is the name that the server's certificate must have, if this is not
    the host of the URL. Every request carries `fields`, for example a key, and what `credential` makes for it. A
    response has at most `max_answer` bytes, and so has each event of a stream. `read` receives the head of each
    response. An empty URL is that of a server that has no address yet.
    """

    def __init__(
        self,
        url: str,
        *,
        tls: ssl.SSLContext | None = None,
        connect_timeout: float = 5.0,
        max_connections: int = 256,
        server_name: str | None = None,
        fields: bytes = b"",
        proxy: Proxy | None = None,
        max_answer: int = MAX_ANSWER,
        credential: Credential | None = None,
        read: Callable[[Headers], None] | None = None,
    ) -> None:
        self.max_answer = max_answer
        self._credential = credential
        self._read = read
        self._own_fields = fields
        self._proxy = proxy
        parts = self._locate(url)
        self._tls = (tls or ssl.create_default_context()) if parts.scheme == "https" else None
        self._server_name = (server_name or self._host) if self._tls else None
        self._connect_timeout = connect_timeout
        self._max_connections = max_connections
        self._loop = asyncio.get_running_loop()
        self._idle: list[Exchange] = []
        self._open: set[Exchange] = set()
        self._connecting = 0
        self._closed = False
        self._sweeper = sweeper(self._loop)

    def _locate(self, url: str) -> SplitResult:
        self._unix_path = url.removeprefix("unix:") if url.startswith("unix:") else None
        parts = urlsplit("http://localhost" if self._unix_path else url)
        self.base_path = parts.path.rstrip("/")
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._host_name = parts.netloc
        self._host_field = f"host: {parts.netloc}\r\n".encode("latin-1") + self._own_fields
        self._origin = b""
        """What precedes the path in a request, for a proxy that forwards it."""
        if self._proxy is not None and parts.scheme == "http":
            self._origin = f"http://{parts.netloc}".encode("latin-1")
            self._host_field += self._proxy.field
        return parts

    def move(self, url: str) -> None:
        """Use another address without TLS from now on, and abort the connections to the old one. Empty: there is no
        address, and each request fails as undelivered."""
        self._locate(url)
        self._idle.clear()
        for exchange in self._open:
            exchange.cut()
        self._open.clear()

    def now(self) -> float:
        """The time of the loop, which deadlines use."""
        return self._loop.time()

    @property
    def connections(self) -> int:
        """The number of open connections, including idle connections."""
        return len(self._open)

    async def request(
        self, method: bytes, target: bytes, fields: bytes, body: bytes, deadline: Deadline
    ) -> ClientResponse:
        """Send a request and wait for the head of the response.

        `fields` are encoded header fields (`encode_fields`) without Host and Content-Length. A response that is
        compressed is decompressed, unless `fields` ask for a compression. If an idle connection breaks before any byte
        of the response arrives, an idempotent request is sent once more, on a new connection; any other is not, as the
        upstream may have processed it (RFC 9110 9.2.2). A request of a context with a relay is sent by the relay.
        """
        decodes = b"accept-encoding:" not in fields
        if decodes:
            fields += IDENTITY
        if self._credential is not None:
            return await self._authenticated(self._credential, method, target, fields, body, deadline, decodes)
        return self._response(await self._exchanged(method, target, fields, body, deadline), decodes)

    async def _authenticated(
        self,
        credential: Credential,
        method: bytes,
        target: bytes,
        fields: bytes,
        body: bytes,
        deadline: Deadline,
        decodes: bool,
    ) -> ClientResponse:
        """Send a request with what the credential makes for it, and once more if it corrects a refusal."""
        outgoing = OutgoingRequest(method, self._host_name, target, self._own_fields + fields, body)
        for again in (False, True):
            try:
                async with asyncio.timeout_at(deadline.at):
                    applied = await credential.apply(outgoing)
            except TimeoutError:
                raise DeadlineError("The request's deadline has passed.") from None
            exchange = await self._exchanged(method, target, fields + applied, body, deadline)
            response = self._response(exchange, decodes)
            if again or response.status not in REFUSED:
                break
            if not credential.corrects(applied, response.status, response.headers):
                break
            response.close()
        return response

    async def _exchanged(
        self, method: bytes, target: bytes, fields: bytes, body: bytes, deadline: Deadline
    ) -> Exchange:
        if (relay := RELAY.get()) is not None:
            return await relay.exchange(method, target, self._own_fields + fields, body, deadline)
        head = b"%b %b%b HTTP/1.1\r\n%b%bcontent-length: %d\r\n\r\n" % (
            method, self._origin, target, self._host_field, fields, len(body),
        )  # fmt: skip
        exchange = self._idle_exchange()
        if exchange is not None:
            try:
                return await self._send(exchange, head, body, deadline)
            except TransportError as error:
                if method not in IDEMPOTENT or exchange.answered or isinstance(error, UpstreamTimeout):
                    raise
        return await self._send(await self._connect(deadline), head, body, deadline)

    def _response(self, exchange: Exchange, decodes: bool) -> ClientResponse:
        headers = exchange.headers
        if self._read is not None:
            self._read(headers)
        coded = decodes and b"content-encoding" in headers.raw
        return ClientResponse(self, exchange, headers, decoder_of(headers) if coded else None)

    def _idle_exchange(self) -> Exchange | None:
        """Return the most recently used idle connection that the upstream has not closed."""
        while self._idle:
            exchange = self._idle.pop()
            if self._loop.time() - exchange.rested_at < FRESH_SECONDS or exchange.is_quiet():
                return exchange
            self._drop(exchange)
        return None

    async def _send(self, exchange: Exchange, head: bytes, body: bytes, deadline: Deadline) -> Exchange:
        try:
            exchange.send(head, body, deadline)
            if self._sweeper.is_calm:
                self._sweeper.stir()
            while (wait := exchange.head()) is not None:
                await wait
        except BaseException:
            self._drop(exchange)
            raise
        return exchange

    async def _connect(self, deadline: Deadline) -> Exchange:
        if len(self._open) + self._connecting >= self._max_connections:
            raise Unavailable("Every connection to the upstream is in use.").because("upstream_connections")
        left = deadline.at - self._loop.time()
        self._connecting += 1
        try:
            async with asyncio.timeout(min(self._connect_timeout, left)):
                exchange = await self._dial()
        except TimeoutError:
            # Compare the two limits, not the clock: a timer may fire a millisecond early.
            if left <= self._connect_timeout:
                raise DeadlineError("The request's deadline has passed.") from None
            raise _undelivered(
                UpstreamTimeout("The upstream did not accept a connection in time."),
                self._reason("it did not accept a connection in time"),
            ) from None
        except OSError as failure:
            raise _undelivered(TransportError("The upstream could not be reached."), self._reason(failure)) from None
        finally:
            self._connecting -= 1
        self._open.add(exchange)
        self._sweeper.watch(self._open)
        return exchange

    async def _dial(self) -> Exchange:
        def protocol() -> Exchange:
            return Exchange(self._loop, self._lost)

        place = self._unix_path, self._host, self._port
        if not self._host:
            raise ConnectionRefusedError
        if self._unix_path is not None:
            transport, exchange = await self._loop.create_unix_connection(protocol, self._unix_path)
        else:
            way: dict[str, Any] = {"host": self._host, "port": self._port}
            if self._proxy is not None and self._tls is not None:
                way = {"sock": await self._proxy.tunnel(self._loop, self._host, self._port)}
            elif self._proxy is not None:
                way = {"host": self._proxy.host, "port": self._proxy.port}
            transport, exchange = await self._loop.create_connection(
                protocol, **way, ssl=self._tls, server_hostname=self._server_name
            )
        if transport.is_closing():
            raise ConnectionResetError
        if place != (self._unix_path, self._host, self._port):  # moved meanwhile
            transport.abort()
            raise ConnectionResetError
        return exchange

    def _reason(self, failure: OSError | str) -> str:
        """Why no connection was opened, for the log."""
        text = str(failure) or type(failure).__name__
        return text if self._proxy is None else f"by the proxy {self._proxy.host}:{self._proxy.port}: {text}"

    def give_back(self, exchange: Exchange) -> None:
        """Return a connection to the pool after a complete response; drop any other connection.

        A 500 may be the last response of a connection, also if it does not say so: uvicorn closes it after an
        exception of the app. The next request would be lost with it.
        """
        if exchange.reusable and exchange.status != 500 and not self._closed:
            exchange.rest(KEEPALIVE_SECONDS)
            self._idle.append(exchange)
        else:
            self._drop(exchange)

    def _drop(self, exchange: Exchange) -> None:
        """Close a connection and free its place at once, so that no request is rejected while the socket closes."""
        self._open.discard(exchange)
        exchange.abort()

    def _lost(self, exchange: Exchange) -> None:
        self._open.discard(exchange)
        if exchange in self._idle:
            self._idle.remove(exchange)

    async def aclose(self) -> None:
        """Close idle connections now and active connections when they are given back.

        A request that began before its endpoint was removed may still send another attempt through this client.
        """
        self._closed = True
        for exchange in self._idle:
            exchange.abort()
        self._idle.clear()


def _undelivered(error: TransportError, reason: str) -> TransportError:
    error.delivered, error.detail = False, reason
    return error
