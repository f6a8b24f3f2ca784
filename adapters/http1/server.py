"""Listeners: accept, bound, drain."""

import asyncio
import contextlib
import os
import socket
import ssl
import time
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path

from adapters.http1.connection import Connection
from adapters.http1.message import Handler, Refusal, plain_refusal
from adapters.http1.sweeper import sweeper

BACKLOG = 1024
LULL_SECONDS = 1.0
"""How long a drain leaves an idle connection to the request that may be on its way."""
KiB = 1024
MiB = 1024 * KiB


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one connection; sizes in bytes, times in seconds.

    A head must be whole within `head_timeout`. A body gets `body_timeout` plus the time that its bytes take
    at `min_body_rate`, so that a drip of single bytes ends soon and a large upload does not.
    """

    max_head: int = 32 * KiB
    max_headers: int = 100
    max_body: int = 32 * MiB
    max_pipelined: int = 16
    max_connections: int = 10_000
    head_timeout: float = 10.0
    body_timeout: float = 30.0
    min_body_rate: int = 8 * KiB
    keepalive_timeout: float = 75.0
    send_timeout: float = 60.0


class Server:
    """Serves one handler on any number of TCP, TLS and Unix listeners."""

    def __init__(self, handler: Handler, limits: Limits | None = None, refusal: Refusal = plain_refusal) -> None:
        self.handler = handler
        self.limits = limits or Limits()
        self.refusal = refusal
        self.draining = False
        self.connections: set[Connection] = set()
        self._leaving: set[asyncio.Task[None]] = set()  # cancelled by a disconnect, still cleaning up
        self._listeners: list[tuple[asyncio.Server, ssl.SSLContext | None]] = []
        self._arriving: set[asyncio.Task[object]] = set()
        self._unix_paths: list[tuple[Path, int]] = []
        self._idle = asyncio.Event()
        self._date = (0, b"")
        self.loop = asyncio.get_running_loop()
        self._sweeper = sweeper(self.loop)

    async def listen_tcp(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> tuple[str, int]:
        """Start accepting; returns the address, with the port the kernel chose for 0."""
        listener = await self.loop.create_server(
            lambda: Connection(self), host, port, ssl=tls, backlog=BACKLOG, reuse_address=True
        )
        self._listeners.append((listener, tls))
        address = listener.sockets[0].getsockname()
        return address[0], address[1]

    async def listen_socket(self, bound: socket.socket, tls: ssl.SSLContext | None = None) -> asyncio.Server:
        """Start accepting from a socket that stays its owner's: who else has it may go on when this one stops."""
        listener = await self.loop.create_server(lambda: Connection(self), sock=bound.dup(), ssl=tls, backlog=BACKLOG)
        self._listeners.append((listener, tls))
        return listener

    def leave_socket(self, listener: asyncio.Server) -> None:
        """Accept no more from a socket that another process goes on to accept from."""
        listener.close()
        self._listeners = [entry for entry in self._listeners if entry[0] is not listener]

    async def listen_unix(self, path: str | Path) -> None:
        """Start accepting on a socket that only this user may open."""
        path = Path(path)
        path.unlink(missing_ok=True)
        mask = os.umask(0o177)
        try:
            listener = await self.loop.create_unix_server(lambda: Connection(self), str(path), backlog=1024)
        finally:
            os.umask(mask)
        self._listeners.append((listener, None))
        self._unix_paths.append((path, path.stat().st_ino))

    def opened(self, connection: Connection) -> bool:
        """A connection came; False when there are too many."""
        self.connections.add(connection)
        self._sweeper.watch(self.connections)
        return len(self.connections) <= self.limits.max_connections

    def closed(self, connection: Connection, task: asyncio.Task[None] | None) -> None:
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
        self._stop_listening(accept_waiting=True)
        await asyncio.sleep(0)  # who was accepted a moment ago is no connection yet
        try:
            async with asyncio.timeout(grace):
                if self._arriving:
                    await asyncio.wait(self._arriving)
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
        self._stop_listening()
        for arriving in self._arriving:
            arriving.cancel()
        tasks = {task for connection in list(self.connections) if (task := connection.abort()) is not None}
        if tasks := tasks | self._leaving:
            await asyncio.wait(tasks)

    def _stop_listening(self, *, accept_waiting: bool = False) -> None:
        for listener, tls in self._listeners:
            bound = [socket.socket(fileno=os.dup(one.fileno())) for one in listener.sockets] if accept_waiting else []
            listener.close()
            for one in bound:
                with one:
                    self._accept_waiting(one, tls)
        self._listeners.clear()
        for path, inode in self._unix_paths:
            # A successor may already listen under the same name.
            if path.exists() and path.stat().st_ino == inode:
                path.unlink()
        self._unix_paths.clear()

    def _accept_waiting(self, bound: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Take over connections that the kernel has made: closing the socket would reset them."""
        bound.setblocking(False)
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = bound.accept()
                task = self.loop.create_task(self._adopt(accepted, tls))
                self._arriving.add(task)
                task.add_done_callback(self._arriving.discard)

    async def _adopt(self, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        with contextlib.suppress(OSError):  # it left, or TLS was not what it spoke
            await self.loop.connect_accepted_socket(lambda: Connection(self), accepted, ssl=tls)
