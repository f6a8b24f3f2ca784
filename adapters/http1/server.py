"""An HTTP server with one handler, limits and a drain."""

import asyncio
import time
from collections.abc import Callable
from email.utils import formatdate

from adapters.http1.budget import Budget
from adapters.http1.connection import Connection
from adapters.http1.host import Limits as Limits
from adapters.http1.host import ServedConnection
from adapters.http1.listeners import Accepting
from adapters.http1.message import Handler, Refusal, plain_refusal

LULL_SECONDS = 1.0
"""Time that a drain leaves an idle connection open, for a request that may be in transit."""


class Server(Accepting[ServedConnection]):
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
        self._leaving: set[asyncio.Task[None]] = set()  # cancelled by a disconnect and still cleaning up
        self._date = (0, b"")
        super().__init__(self._protocol_factory(), self.limits.max_connections, LULL_SECONDS)

    def _protocol_factory(self) -> Callable[[], asyncio.Protocol]:
        if not self.limits.http2:
            return lambda: Connection(self)
        from adapters.http1.greeting import Greeting

        return lambda: Greeting(self)

    def closed(self, connection: "ServedConnection", task: asyncio.Task[None] | None) -> None:
        """Remove a connection; `task` answered its requests and has been cancelled."""
        self._lost(connection)
        if task is not None:
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    def date(self) -> bytes:
        """The value of the Date field, formatted once a second."""
        now = int(time.time())
        if now != self._date[0]:
            self._date = (now, formatdate(now, usegmt=True).encode())
        return self._date[1]

    async def aclose(self) -> None:
        """Stop at once: requests in progress are cancelled, and their handlers have ended on return."""
        self._stop_accepting()
        tasks = {task for connection in list(self.connections) if (task := connection.abort()) is not None}
        if tasks := tasks | self._leaving:
            await asyncio.wait(tasks)
