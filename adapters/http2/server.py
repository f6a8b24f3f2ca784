"""A gRPC server with one handler, limits and a drain."""

import asyncio
import socket
import ssl

from adapters.http1.accepting import Accepting
from adapters.http1.budget import Budget
from adapters.http1.shared_socket import SharedSocket, Siblings
from adapters.http2 import frames
from adapters.http2.accepted import Accepted, Handler
from adapters.http2.connection import CONNECTION_WINDOW, for_http2
from adapters.http2.framing import MAX_DATA_FRAME
from adapters.http2.limits import Limits as Limits
from adapters.http2.receiving import STREAM_WINDOW


class Server(Accepting[Accepted]):
    """Serves one handler on any number of TCP, TLS and Unix listeners.

    A TLS context is changed to offer only HTTP/2: no other listener may use the same context.
    """

    def __init__(self, handler: Handler, limits: Limits | None = None, budget: Budget | None = None) -> None:
        self.handler = handler
        self.limits = limits or Limits()
        super().__init__(lambda: Accepted(self), self.limits.max_connections, self.limits.lull)
        self.budget = budget or Budget(self.limits.max_held_by_all)
        self.greeting = frames.settings_frame(
            {
                frames.MAX_CONCURRENT_STREAMS: self.limits.max_streams,
                frames.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
                frames.MAX_FRAME_SIZE: MAX_DATA_FRAME,
                frames.MAX_HEADER_LIST_SIZE: self.limits.max_head,
            }
        ) + frames.window_update(0, CONNECTION_WINDOW - frames.DEFAULT_WINDOW)

    async def listen_tcp(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> tuple[str, int]:
        return await super().listen_tcp(host, port, for_http2(tls))

    def listen_socket(
        self, bound: socket.socket, tls: ssl.SSLContext | None = None, siblings: Siblings | None = None
    ) -> SharedSocket:
        return super().listen_socket(bound, for_http2(tls), siblings)

    def closed(self, connection: Accepted) -> None:
        """Remove a connection from the count."""
        self._lost(connection)

    def begun(self, task: asyncio.Task[None]) -> None:
        """Register the task of a handler: a drain waits for its end."""
        self._tasks.add(task)

    def ended(self, task: asyncio.Task[None]) -> None:
        """Remove the task of a handler that is about to end."""
        self._tasks.discard(task)

    def cancel(self, task: asyncio.Task[None]) -> None:
        """Cancel a handler at most once: a second cancel would interrupt its cleanup. The task may not have begun."""
        if not task.done() and not task.cancelling():
            task.add_done_callback(self._tasks.discard)
            task.cancel()

    async def aclose(self) -> None:
        """Stop at once: calls in progress are cancelled, and their handlers have ended on return."""
        self._stop_accepting()
        for connection in list(self.connections):
            connection.abort()
        for task in set(self._tasks):
            self.cancel(task)
        if self._tasks:
            await asyncio.wait(set(self._tasks))
