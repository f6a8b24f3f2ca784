"""An HTTP server with one handler, limits and a drain."""

import asyncio
import time
from collections.abc import Callable
from email.utils import formatdate

from adapters.http1.budget import Budget
from adapters.http1.connection import Connection
from adapters.http1.host import Member
from adapters.http1.limits import Limits as Limits
from adapters.http1.listeners import Listeners
from adapters.http1.message import Handler, Refusal, plain_refusal
from adapters.http1.room import Room
from adapters.http1.sweeper import sweeper

LULL_SECONDS = 1.0
"""Time that a drain leaves an idle connection open, for a request that may be in transit."""


class Server(Listeners):
    """Serves one handler on any number of TCP, TLS and Unix listeners."""

    def __init__(
        self,
        handler: Handler,
        limits: Limits | None = None,
        refusal: Refusal = plain_refusal,
        budget: Budget | None = None,
    ) -> None:
        self.handler = handler
        self.limits = limits or Limits()
        self.budget = budget or Budget(self.limits.max_held)
        self.refusal = refusal
        self.draining = False
        self.connections: set[Member] = set()
        self._leaving: set[asyncio.Task[None]] = set()  # cancelled by a disconnect and still cleaning up
        self._idle = asyncio.Event()
        self._date = (0, b"")
        super().__init__(self._protocol_factory(), self.limits.max_connections)
        self._room = Room(self.loop, self.connections, self.limits.max_connections)
        self._sweeper = sweeper(self.loop)

    def _protocol_factory(self) -> Callable[[], asyncio.Protocol]:
        if not self.limits.http2:
            return lambda: Connection(self)
        from adapters.http1.greeting import Greeting

        return lambda: Greeting(self)

    def opened(self, connection: "Member") -> bool:
        """Count a connection. False if the server is full and no connection is idle."""
        self.connections.add(connection)
        self._sweeper.watch(self.connections)
        return self._room.admits(connection)

    def closed(self, connection: "Member", task: asyncio.Task[None] | None) -> None:
        """Remove a connection; `task` answered its requests and has been cancelled."""
        self.connections.discard(connection)
        if task is not None:
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)
        if not self.connections:
            self._idle.set()

    def date(self) -> bytes:
        """The value of the Date field, formatted once a second."""
        now = int(time.time())
        if now != self._date[0]:
            self._date = (now, formatdate(now, usegmt=True).encode())
        return self._date[1]

    async def drain(self, grace: float) -> bool:
        """Stop accepting and let requests in progress end, for at most `grace` seconds. Returns whether all ended.

        Established connections are served, even if their request is still in transit. Each response announces the
        close of its connection.
        """
        self.draining = True
        self.stop_listening(accept_waiting=True)
        await asyncio.sleep(0)  # a socket accepted in this turn is not a connection yet
        try:
            async with asyncio.timeout(grace):
                if self.arriving:
                    await asyncio.wait(self.arriving)
                for connection in list(self.connections):
                    connection.hurry(min(LULL_SECONDS, grace / 2))
                while self.connections:
                    self._idle.clear()
                    await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def aclose(self) -> None:
        """Stop at once: requests in progress are cancelled, and their handlers have ended on return."""
        self.draining = True
        self.stop_listening()
        for arriving in self.arriving:
            arriving.cancel()
        tasks = {task for connection in list(self.connections) if (task := connection.abort()) is not None}
        if tasks := tasks | self._leaving:
            await asyncio.wait(tasks)
