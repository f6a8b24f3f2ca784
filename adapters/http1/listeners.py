"""Listening sockets: TCP, TLS, Unix, or inherited."""

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

from adapters.http1.shared_socket import SharedSocket, Siblings

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
        self._listeners: list[tuple[asyncio.Server, ssl.SSLContext | None]] = []
        self._unix_paths: list[tuple[Path, int]] = []
        self._shared: list[SharedSocket] = []
        self._shared_tls: ssl.SSLContext | None = None
        self._siblings: Siblings | None = None
        self._unopened = 0
        """Accepted connections that have no protocol yet."""

    async def listen_tcp(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> tuple[str, int]:
        """Listen on a TCP address. Returns the address; port 0 becomes the port that the kernel selected."""
        timeout = HANDSHAKE_SECONDS if tls else None
        listener = await self.loop.create_server(
            self._protocol,
            host,
            port,
            ssl=tls,
            backlog=self._backlog,
            reuse_address=True,
            ssl_handshake_timeout=timeout,
        )
        self._listeners.append((listener, tls))
        address = listener.sockets[0].getsockname()
        return address[0], address[1]

    def listen_socket(
        self, bound: socket.socket, tls: ssl.SSLContext | None = None, siblings: Siblings | None = None
    ) -> SharedSocket:
        """Accept connections from an inherited socket, whose other owners may still accept after this server stops.

        `tls` and `siblings` are the same for all sockets of this server.
        """
        self._shared_tls, self._siblings = tls, siblings
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
        self._listeners.append((listener, None))
        self._unix_paths.append((path, path.stat().st_ino))

    def stop_listening(self, *, accept_waiting: bool = False) -> None:
        """Stop accepting. `accept_waiting` accepts the connections that the kernel has already established."""
        for listener, tls in self._listeners:
            bound = [socket.socket(fileno=os.dup(one.fileno())) for one in listener.sockets] if accept_waiting else []
            listener.close()
            for one in bound:
                with one:
                    self._accept_waiting(one, tls)
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

    def _accept_waiting(self, bound: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Accept the connections that the kernel has established: a close of the socket would reset them."""
        bound.setblocking(False)
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = bound.accept()
                self._arrive(accepted, tls)

    def _arrive(self, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        self._unopened += 1
        if self._siblings is not None:
            self._siblings.arrived()
        self._count()
        task = self.loop.create_task(self._adopt(accepted, tls))
        self.arriving.add(task)
        task.add_done_callback(self.arriving.discard)

    async def _adopt(self, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        timeout = HANDSHAKE_SECONDS if tls else None
        try:
            await self.loop.connect_accepted_socket(self._protocol, accepted, ssl=tls, ssl_handshake_timeout=timeout)
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
