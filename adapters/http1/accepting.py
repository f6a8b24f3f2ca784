"""The accepted connections of a server: their limit, their deadlines and their drain."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from adapters.http1.host import ServedConnection
from adapters.http1.listeners import Listeners
from adapters.http1.room import Room
from adapters.http1.sweeper import sweeper

C = TypeVar("C", bound=ServedConnection)


class Accepting(Listeners, Generic[C]):
    """Listeners with a limited number of open connections, which can be drained.

    A drain leaves an idle connection open for `lull` seconds, for a request that may be in transit, and a connection
    whose client has not spoken yet for half of the drain.
    """

    def __init__(self, protocol: Callable[[], asyncio.Protocol], max_connections: int, lull: float) -> None:
        super().__init__(protocol, max_connections)
        self.draining = False
        self.connections: set[C] = set()
        self._tasks: set[asyncio.Task[None]] = set()  # handlers that a drain waits for, even after their response
        self._lull = lull
        self._idle = asyncio.Event()
        self._room = Room(self.loop, self.connections, max_connections)
        self._sweeper = sweeper(self.loop)

    def opened(self, connection: C) -> bool:
        """Count a connection. False if the server is full and no connection is idle."""
        self.connections.add(connection)
        self._opened()
        self._sweeper.watch(self.connections)
        return self._room.admits(connection)

    def _lost(self, connection: C) -> None:
        """Remove a closed connection from the count."""
        self.connections.discard(connection)
        self._count()
        if not self.connections:
            self._idle.set()

    @property
    def open_connections(self) -> int:
        return len(self.connections) + self._unopened

    async def drain(self, grace: float) -> bool:
        """Stop accepting and let requests in progress end, for at most `grace` seconds. Returns whether all ended.

        Established connections are served, even if their request is still in transit. The client of each connection
        receives an announcement of the close.
        """
        self.draining = True
        self.stop_listening(accept_waiting=True)
        await asyncio.sleep(0)  # a socket accepted in this turn is not a connection yet
        try:
            async with asyncio.timeout(grace):
                if self.arriving:
                    await asyncio.wait(self.arriving)
                for connection in list(self.connections):
                    connection.hurry(min(self._lull, grace / 2), grace / 2)
                self._sweeper.stir()
                while self.connections:
                    self._idle.clear()
                    await self._idle.wait()
                if self._tasks:
                    await asyncio.wait(set(self._tasks))
        except TimeoutError:
            return False
        return True

    def _stop_accepting(self) -> None:
        """Stop accepting at once, and drop the connections that are being accepted."""
        self.draining = True
        self.stop_listening()
        for arriving in self.arriving:
            arriving.cancel()
