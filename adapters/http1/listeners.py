"""Listening sockets: TCP, TLS, Unix, or inherited."""

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

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

    async def listen_socket(self, bound: socket.socket, tls: ssl.SSLContext | None = None) -> asyncio.Server:
        """Accept connections from an inherited socket, whose other owners may still accept after this server stops."""
        timeout = HANDSHAKE_SECONDS if tls else None
        listener = await self.loop.create_server(
            self._protocol, sock=bound.dup(), ssl=tls, backlog=self._backlog, ssl_handshake_timeout=timeout
        )
        self._listeners.append((listener, tls))
        return listener

    def leave_socket(self, listener: asyncio.Server) -> None:
        """Stop accepting from a socket; another process may still accept from it."""
        listener.close()
        self._listeners = [entry for entry in self._listeners if entry[0] is not listener]

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
                task = self.loop.create_task(self._adopt(accepted, tls))
                self.arriving.add(task)
                task.add_done_callback(self.arriving.discard)

    async def _adopt(self, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        with contextlib.suppress(OSError):  # the client disconnected, or does not use TLS
            await self.loop.connect_accepted_socket(self._protocol, accepted, ssl=tls)
