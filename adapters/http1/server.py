"""One handler served: bound, drained."""

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
"""How long a drain leaves an idle connection to the request that may be on its way."""


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
        self._leaving: set[asyncio.Task[None]] = set()  # cancelled by a disconnect, still cleaning up
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
        """A connection came; False when there are too many, and none of them is idle."""
        self.connections.add(connection)
        self._sweeper.watch(self.connections)
        return self._room.admits(connection)

    def closed(self, connection: "Member", task: asyncio.Task[None] | None) -> None:
        """A connection went; `task` was answering on it and has been cancelled."""
        self.connections.discard(connection)
        if task is not None:
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)
        if not self.connections:
            self._idle.set()

    def date(self) -> bytes:
        """The Date field, formatted once a second."""
        now = int(time.time())
        if now != self._date[0]:
            self._date = (now, formatdate(now, usegmt=True).encode())
        return self._date[1]

    async def drain(self, grace: float) -> bool:
        """Accept no more, let requests in flight end, for at most `grace` seconds. True when all did.

        Who has connected is answered, also when its request is still on the way; each answer says that the
        connection closes.
        """
        self.draining = True
        self.stop_listening(accept_waiting=True)
        await asyncio.sleep(0)  # who was accepted a moment ago is no connection yet
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
        """Stop at once: requests in flight are cancelled, and their handlers have ended on return."""
        self.draining = True
        self.stop_listening()
        for arriving in self.arriving:
            arriving.cancel()
        tasks = {task for connection in list(self.connections) if (task := connection.abort()) is not None}
        if tasks := tasks | self._leaving:
            await asyncio.wait(tasks)
