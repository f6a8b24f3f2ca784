"""Listeners: accept, bound, drain."""

import asyncio
import os
import ssl
import time
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path

from adapters.http1.connection import Connection
from adapters.http1.message import Handler, Refusal, plain_refusal
from adapters.http1.sweeper import Sweeper

SWEEP_SECONDS = 0.25
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
        self._listeners: list[asyncio.Server] = []
        self._unix_paths: list[tuple[Path, int]] = []
        self._idle = asyncio.Event()
        self._date = (0, b"")
        self.loop = asyncio.get_running_loop()
        self._sweeper = Sweeper(self.loop, self.connections, SWEEP_SECONDS)

    async def listen_tcp(
        self, host: str, port: int, tls: ssl.SSLContext | None = None, *, backlog: int = 1024
    ) -> tuple[str, int]:
        """Start accepting; returns the address, with the port the kernel chose for 0."""
        listener = await self.loop.create_server(
            lambda: Connection(self), host, port, ssl=tls, backlog=backlog, reuse_address=True
        )
        self._listeners.append(listener)
        address = listener.sockets[0].getsockname()
        return address[0], address[1]

    async def listen_unix(self, path: str | Path) -> None:
        """Start accepting on a socket that only this user may open."""
        path = Path(path)
        path.unlink(missing_ok=True)
        mask = os.umask(0o177)
        try:
            listener = await self.loop.create_unix_server(lambda: Connection(self), str(path), backlog=1024)
        finally:
            os.umask(mask)
        self._listeners.append(listener)
        self._unix_paths.append((path, path.stat().st_ino))

    def opened(self, connection: Connection) -> bool:
        """A connection came; False when there are too many."""
        self.connections.add(connection)
        self._sweeper.wake()
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
        """Accept no more, let requests in flight end, for at most `grace` seconds. True when all did."""
        self.draining = True
        self._stop_listening()
        for connection in list(self.connections):
            connection.close_if_idle()
        if self.connections:
            self._idle.clear()
            try:
                await asyncio.wait_for(self._idle.wait(), grace)
            except TimeoutError:
                return False
        return True

    async def aclose(self) -> None:
        """Stop at once: requests in flight are cancelled, and their handlers have ended on return."""
        self.draining = True
        self._stop_listening()
        tasks = {task for connection in list(self.connections) if (task := connection.abort()) is not None}
        if tasks := tasks | self._leaving:
            await asyncio.wait(tasks)
        self._sweeper.close()

    def _stop_listening(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        for path, inode in self._unix_paths:
            # A successor may already listen under the same name.
            if path.exists() and path.stat().st_ino == inode:
                path.unlink()
        self._unix_paths.clear()
