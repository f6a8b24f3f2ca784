"""Listening sockets, and the connections that a server accepts from them: their limit and their drain."""

import asyncio
import contextlib
import heapq
import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from adapters.cut import Cut
from adapters.http1.host import ServedConnection
from adapters.http1.sweeper import sweeper

# Accepts connections from a socket that another process bound, and may hand them over to other processes.

EXHAUSTED = 0.1
"""Seconds after which a process without a free file descriptor tries again."""
MOST = 16
"""Connections accepted in one turn of the loop."""


class Siblings(Protocol):
    """The processes that serve the same clients."""

    def give(self, accepted: socket.socket) -> bool:
        """Hand a connection over to another process if that one has fewer. False if this process must serve it."""

    def arrived(self) -> None:
        """Count a new connection of this process."""

    def hold(self, connections: int) -> None:
        """This process has that number of open connections."""

    def leave(self) -> None:
        """This process accepts no more."""


class SharedSocket:
    """Accepts from a socket until `close`. Other processes may accept from it at any time."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, bound: socket.socket, siblings: Siblings | None,
        adopt: Callable[[socket.socket], None],
    ) -> None:  # fmt: skip
        self._loop = loop
        self._bound = bound.dup()
        self._bound.setblocking(False)
        self._siblings = siblings
        self._adopt = adopt
        self._pause: asyncio.TimerHandle | None = None
        self._resume()

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._bound, self._accept)

    def _accept(self) -> None:
        for _ in range(MOST):
            try:
                accepted, _ = self._bound.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:  # the client has gone
                continue
            except OSError:
                self._loop.remove_reader(self._bound)
                self._pause = self._loop.call_later(EXHAUSTED, self._resume)
                return
            if self._siblings is None or not self._siblings.give(accepted):
                self._adopt(accepted)

    def close(self) -> socket.socket:
        """Accept no more. Returns the socket, which the caller closes."""
        if self._pause is None:
            self._loop.remove_reader(self._bound)
        else:
            self._pause.cancel()
        return self._bound


Contexts = Callable[[], ssl.SSLContext]
"""Returns the TLS context for a new connection, so that a renewed certificate needs no other listener."""
BACKLOG = 1024
HANDSHAKE_SECONDS = 10.0
"""Time limit of the TLS handshake: a server does not count a connection before the handshake ends."""


class Listeners:
    """Listening sockets that attach a new protocol to each accepted connection.

    `arriving` has the tasks of connections that are being accepted.
    """

    def __init__(self, protocol: Callable[[], asyncio.Protocol], max_connections: int = BACKLOG) -> None:
        self._protocol = protocol
        # One turn of the loop may accept the whole backlog before any of these connections can be closed.
        self._backlog = max(16, min(BACKLOG, max_connections))
        self.loop = asyncio.get_running_loop()
        self.arriving: set[asyncio.Task[object]] = set()
        self._listeners: list[asyncio.Server] = []
        self._unix_paths: list[tuple[Path, int]] = []
        self._shared: list[SharedSocket] = []
        self._shared_tls: Contexts | None = None
        self._siblings: Siblings | None = None
        self._unopened = 0
        """Accepted connections that have no protocol yet."""

    async def listen_tcp(self, host: str, port: int, tls: ssl.SSLContext | Contexts | None = None) -> tuple[str, int]:
        """Listen on a TCP address. Returns the address; port 0 becomes the port that the kernel selected.

        `tls` is the same for all sockets of this server.
        """
        listener = await self.loop.create_server(
            self._protocol, host, port, backlog=self._backlog, reuse_address=True, start_serving=tls is None
        )
        address = listener.sockets[0].getsockname()
        if tls is None:
            self._listeners.append(listener)
            return address[0], address[1]
        # The loop's own listener would hold one context for its life.
        for one in listener.sockets:
            with socket.socket(fileno=os.dup(one.fileno())) as bound:
                bound.listen(self._backlog)
                self.listen_socket(bound, tls)
        listener.close()
        return address[0], address[1]

    def listen_socket(
        self, bound: socket.socket, tls: ssl.SSLContext | Contexts | None = None, siblings: Siblings | None = None
    ) -> SharedSocket:
        """Accept connections from an inherited socket, whose other owners may still accept after this server stops.

        `tls` and `siblings` are the same for all sockets of this server.
        """
        self._shared_tls = (lambda: tls) if isinstance(tls, ssl.SSLContext) else tls
        self._siblings = siblings
        shared = SharedSocket(self.loop, bound, siblings, self.adopt)
        self._shared.append(shared)
        return shared

    def leave_socket(self, shared: SharedSocket) -> None:
        """Stop accepting from a socket; another process may still accept from it."""
        shared.close().close()
        self._shared.remove(shared)

    def adopt(self, accepted: socket.socket) -> None:
        """Serve an accepted connection of an inherited socket."""
        self._arrive(accepted, self._shared_tls)

    async def listen_unix(self, path: str | Path) -> None:
        """Listen on a Unix socket that only this user may open."""
        path = Path(path)
        path.unlink(missing_ok=True)
        mask = os.umask(0o177)
        try:
            listener = await self.loop.create_unix_server(self._protocol, str(path), backlog=self._backlog)
        finally:
            os.umask(mask)
        self._listeners.append(listener)
        self._unix_paths.append((path, path.stat().st_ino))

    def stop_listening(self, *, accept_waiting: bool = False) -> None:
        """Stop accepting. `accept_waiting` accepts the connections that the kernel has already established."""
        for listener in self._listeners:
            bound = [socket.socket(fileno=os.dup(one.fileno())) for one in listener.sockets] if accept_waiting else []
            listener.close()
            for one in bound:
                with one:
                    self._accept_waiting(one, None)
        self._listeners.clear()
        for shared in self._shared:
            with shared.close() as one:
                if accept_waiting:
                    self._accept_waiting(one, self._shared_tls)
        self._shared.clear()
        if self._siblings is not None:
            self._siblings.leave()
        for path, inode in self._unix_paths:
            # A successor may already listen on the same path.
            if path.exists() and path.stat().st_ino == inode:
                path.unlink()
        self._unix_paths.clear()

    def _accept_waiting(self, bound: socket.socket, tls: Contexts | None) -> None:
        """Accept the connections that the kernel has established: a close of the socket would reset them."""
        bound.setblocking(False)
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = bound.accept()
                self._arrive(accepted, tls)

    def _arrive(self, accepted: socket.socket, tls: Contexts | None) -> None:
        self._unopened += 1
        if self._siblings is not None:
            self._siblings.arrived()
        self._count()
        task = self.loop.create_task(self._adopt(accepted, tls))
        self.arriving.add(task)
        task.add_done_callback(self.arriving.discard)

    async def _adopt(self, accepted: socket.socket, tls: Contexts | None) -> None:
        timeout = HANDSHAKE_SECONDS if tls else None
        try:
            context = tls() if tls else None
            await self.loop.connect_accepted_socket(
                self._protocol, accepted, ssl=context, ssl_handshake_timeout=timeout
            )
        except OSError:  # the client disconnected, or does not use TLS
            self._opened()
            self._count()

    def _opened(self) -> None:
        """An accepted connection has its protocol, or will never have one."""
        self._unopened = max(0, self._unopened - 1)

    @property
    def open_connections(self) -> int:
        """Accepted connections."""
        return self._unopened

    def _count(self) -> None:
        if self._siblings is not None:
            self._siblings.hold(self.open_connections)


# Slots for connections. If all slots are in use, idle connections yield theirs to new connections.

SHARE = 16
"""A search closes up to 1/16 of the connections, so that a flood does not cost a search for each connection."""
REST = 5e-6
"""Pause after a search without a result: this number of seconds for each connection."""


class Guest(Protocol):
    """A connection, as the room uses it."""

    deadline: float

    @property
    def spare(self) -> bool:
        """Whether the connection has no request in progress and nothing to send."""

    def give_way(self) -> None:
        """Close at once."""


G = TypeVar("G", bound=Guest)
C = TypeVar("C", bound=ServedConnection)


class Room(Generic[G]):
    """The connections of a server, limited to `most`."""

    __slots__ = ("_guests", "_loop", "_most", "_search_again")

    def __init__(self, loop: asyncio.AbstractEventLoop, guests: set[G], most: int) -> None:
        self._loop = loop
        self._guests = guests
        self._most = most
        self._search_again = 0.0

    def admits(self, newcomer: G) -> bool:
        """Whether a new connection, already among the guests, has a slot. Closes idle connections if necessary."""
        return len(self._guests) <= self._most or self._make(newcomer)

    def _make(self, newcomer: G) -> bool:
        now = self._loop.time()
        if now < self._search_again:
            return False
        spare = (guest for guest in self._guests if guest is not newcomer and guest.spare)
        # A connection after a request has a later deadline than a connection that was never used.
        leaving = heapq.nsmallest(1 + self._most // SHARE, spare, key=lambda guest: guest.deadline)
        for guest in leaving:
            self._guests.discard(guest)
            guest.give_way()
        if not leaving:
            self._search_again = now + REST * len(self._guests)
        return len(self._guests) <= self._most


# The accepted connections of a server: their limit, their deadlines and their drain.


class Accepting(Listeners, Generic[C]):
    """Listeners with a limited number of open connections, which can be drained.

    A drain leaves an idle connection open for `lull` seconds, for a request that may be in transit, and a connection
    whose client has not spoken yet for half of the drain.
    """

    def __init__(self, protocol: Callable[[], asyncio.Protocol], max_connections: int, lull: float) -> None:
        super().__init__(protocol, max_connections)
        self.draining = False
        self.cut = Cut()
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

    async def cut_requests(self, patience: float) -> int:
        """End the drain: each request in progress ends with an error of its door, within `patience` seconds.

        Returns how many there were. Connections without a request stay as they are.
        """
        self.draining = self.cut.begun = True
        tasks = {task for connection in list(self.connections) for task in connection.end_requests()}
        if not tasks:
            return 0
        ends = self.loop.time() + patience
        await asyncio.wait(tasks, timeout=patience)
        with contextlib.suppress(TimeoutError):  # clients read the last bytes, and close
            async with asyncio.timeout_at(ends):
                while self.connections:
                    self._idle.clear()
                    await self._idle.wait()
        return len(tasks)

    def _stop_accepting(self) -> None:
        """Stop accepting at once, and drop the connections that are being accepted."""
        self.draining = True
        self.stop_listening()
        for arriving in self.arriving:
            arriving.cancel()
