"""The admin listener: aiohttp's server with bounds on each connection and on their number.

aiohttp waits for the head of a first request without an end, and accepts any number of connections. It is imported, and
the application made, when the first client connects: clients of models wait neither for that nor for its memory.
"""

import asyncio
import importlib
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from adapters.http1.listeners import Listeners, Room
from adapters.http1.sweeper import NEVER, sweeper

if TYPE_CHECKING:  # imported with the application
    from aiohttp import web
    from aiohttp.typedefs import Handler, Middleware

log = logging.getLogger(__name__)
APPLICATION = "gateway.admin.front"
"""The module with the API of operators."""
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
        self.inner: web.RequestHandler | None = None
        self._early = b""
        """What came before the application: uvloop reads once even if `connection_made` pauses."""
        self.deadline = NEVER

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if not self._listener.opened(self):
            self.give_way()
        elif self._listener.is_made:
            self._begin()
        else:
            self._transport.pause_reading()
            self._listener.made().add_done_callback(self._made)

    def _made(self, making: "asyncio.Task[None]") -> None:
        if self._transport.is_closing():
            return
        if making.cancelled() or making.exception() is not None:
            self.give_way()
        else:
            self._begin()
            self._transport.resume_reading()

    def _begin(self) -> None:
        self.deadline = self._loop.time() + self._limits.head_timeout  # not before: the client waits for the modules
        self.inner = self._listener.serve(self)
        self.inner.connection_made(self._transport)
        if self._early:
            early, self._early = self._early, b""
            self.data_received(early)

    def data_received(self, data: bytes) -> None:
        if self.inner is None:
            self._early += data
            self._transport.pause_reading()
            return
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
        if self.inner is not None:
            self.inner.eof_received()

    def pause_writing(self) -> None:
        if self.inner is not None:
            self.inner.pause_writing()

    def resume_writing(self) -> None:
        if self.inner is not None:
            self.inner.resume_writing()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.deadline = NEVER
        self._listener.closed(self)
        if self.inner is not None:
            self.inner.connection_lost(exc)

    @property
    def rests(self) -> bool:
        """Whether the connection waits for a request, whose time limits are seconds."""
        return self.deadline != NEVER and not self._in_head

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

    def __init__(self, make: "Callable[[], web.Application]", limits: AdminLimits | None = None) -> None:
        """`make` makes the application, after the modules of the API have been imported."""
        self.limits = limits or AdminLimits()
        super().__init__(lambda: AdminConnection(self), self.limits.max_connections)
        self.connections: set[AdminConnection] = set()
        self._of: dict[object, AdminConnection] = {}
        self._room = Room(self.loop, self.connections, self.limits.max_connections)
        self._make = make
        self._making: asyncio.Task[None] | None = None
        self._runner: web.AppRunner | None = None

    @property
    def is_made(self) -> bool:
        """Whether the application can serve."""
        return self._runner is not None

    def made(self) -> asyncio.Task[None]:
        """Makes the application. After a failure the next client causes another attempt."""
        if self._making is None or (self._making.done() and not self.is_made):
            self._making = self.loop.create_task(self._set_up())
        return self._making

    async def _set_up(self) -> None:
        try:
            if APPLICATION not in sys.modules:
                await asyncio.to_thread(importlib.import_module, APPLICATION)
            from aiohttp import web, web_response

            # aiohttp would name its version and Python's in each response, those to malformed requests included.
            web_response.SERVER_SOFTWARE = "headrace"  # type: ignore[attr-defined]
            app = self._make()
            app.middlewares.insert(0, self._serving())
            runner = web.AppRunner(app, access_log=None, handle_signals=False, lingering_time=LINGER_SECONDS)
            await runner.setup()
        except Exception:
            log.exception("the admin listener cannot serve")
            raise
        self._runner = runner

    def _serving(self) -> "Middleware":
        from aiohttp import web

        @web.middleware
        async def serving(request: web.Request, handler: "Handler") -> web.StreamResponse:
            connection = self._of.get(request.protocol)
            if connection is None:
                return await handler(request)
            connection.request_began()
            try:
                return await handler(request)
            finally:
                connection.request_ended()

        return serving

    def serve(self, connection: AdminConnection) -> "web.RequestHandler":
        """Return aiohttp's protocol of a new connection."""
        assert self._runner is not None
        assert self._runner.server is not None
        inner = self._runner.server()
        self._of[inner] = connection
        return inner

    def opened(self, connection: AdminConnection) -> bool:
        """Register a connection. Returns whether the listener has a place for it."""
        self.connections.add(connection)
        self._opened()
        sweeper(self.loop).watch(self.connections)
        return self._room.admits(connection)

    def closed(self, connection: AdminConnection) -> None:
        self.connections.discard(connection)
        self._of.pop(connection.inner, None)

    async def aclose(self) -> None:
        """Stop accepting, wait for requests, and drop the remaining connections."""
        self.stop_listening()
        if self._making is not None:
            await asyncio.wait((self._making,))
        if self._runner is not None:
            await self._runner.cleanup()
