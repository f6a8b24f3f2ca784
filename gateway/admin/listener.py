"""The admin listener: aiohttp's server with bounds on each connection and on their number.

aiohttp waits for the head of a first request without an end, and accepts any number of connections.
"""

import asyncio
import ssl
from dataclasses import dataclass
from typing import cast

from aiohttp import web, web_response
from aiohttp.typedefs import Handler, Middleware

from adapters.http1.listeners import Listeners, Room
from adapters.http1.sweeper import NEVER, sweeper

# aiohttp would name its version and Python's in each response, those to malformed requests included.
web_response.SERVER_SOFTWARE = "headrace"  # type: ignore[attr-defined]

LINGER_SECONDS = 2.0
"""Seconds in which the listener reads and discards the rest of a body after its response."""


@dataclass(frozen=True, slots=True)
class AdminLimits:
    """Times in seconds. `max_connections` and the files that they open fit into `adapters.process.BESIDE`."""

    head_timeout: float = 10.0
    idle_timeout: float = 75.0
    max_connections: int = 64


class AdminConnection(asyncio.Protocol):
    """Forwards a connection's events to aiohttp. Without a request it ends at its deadline."""

    def __init__(self, listener: "AdminListener") -> None:
        self._listener = listener
        self._limits = listener.limits
        self._loop = listener.loop
        self._in_head = False
        self.inner: web.RequestHandler = listener.serve()
        self.deadline = NEVER

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.deadline = self._loop.time() + self._limits.head_timeout
        if self._listener.opened(self):
            self.inner.connection_made(transport)
        else:
            self.give_way()

    def data_received(self, data: bytes) -> None:
        if self.deadline != NEVER and not self._in_head:
            self._in_head = True
            self.deadline = self._loop.time() + self._limits.head_timeout
        self.inner.data_received(data)

    def request_began(self) -> None:
        self.deadline = NEVER

    def request_ended(self) -> None:
        """Start the time in which the client reads the response and sends another request: `idle_timeout`."""
        self._in_head = False
        self.deadline = self._loop.time() + self._limits.idle_timeout

    def eof_received(self) -> None:
        self.inner.eof_received()

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.deadline = NEVER
        self._listener.closed(self)
        self.inner.connection_lost(exc)

    @property
    def spare(self) -> bool:
        """Whether the connection has no request in progress and its last response is sent."""
        return self.deadline != NEVER and not self._transport.get_write_buffer_size()

    def give_way(self) -> None:
        """Drop the connection."""
        self._transport.abort()

    def expire(self) -> None:
        """Close the connection: no request arrived in time."""
        self.give_way()


class AdminListener(Listeners):
    """Serves an application to operators."""

    def __init__(self, app: web.Application, limits: AdminLimits | None = None) -> None:
        self.limits = limits or AdminLimits()
        super().__init__(lambda: AdminConnection(self), self.limits.max_connections)
        self.connections: set[AdminConnection] = set()
        self._of: dict[object, AdminConnection] = {}
        self._room = Room(self.loop, self.connections, self.limits.max_connections)
        app.middlewares.insert(0, self._serving())
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, lingering_time=LINGER_SECONDS)

    def _serving(self) -> Middleware:
        @web.middleware
        async def serving(request: web.Request, handler: Handler) -> web.StreamResponse:
            connection = self._of.get(request.protocol)
            if connection is None:
                return await handler(request)
            connection.request_began()
            try:
                return await handler(request)
            finally:
                connection.request_ended()

        return serving

    async def listen_tcp(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> tuple[str, int]:
        await self._runner.setup()
        return await super().listen_tcp(host, port, tls)

    def serve(self) -> web.RequestHandler:
        """Return aiohttp's protocol of a new connection."""
        assert self._runner.server is not None
        return self._runner.server()

    def opened(self, connection: AdminConnection) -> bool:
        """Register a connection. Returns whether the listener has a place for it."""
        self.connections.add(connection)
        self._of[connection.inner] = connection
        sweeper(self.loop).watch(self.connections)
        return self._room.admits(connection)

    def closed(self, connection: AdminConnection) -> None:
        self.connections.discard(connection)
        self._of.pop(connection.inner, None)

    async def aclose(self) -> None:
        """Stop accepting, wait for requests, and drop the remaining connections."""
        self.stop_listening()
        await self._runner.cleanup()
