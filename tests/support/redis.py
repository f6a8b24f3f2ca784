"""A real Redis of the test's own."""

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.debian import binary


class RedisServer:
    """A Redis server on a socket in a folder, with nothing on disk: its data ends with its process."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "redis.sock"
        self.url = f"unix://{self.path}"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self, *, keep: bool = False) -> None:
        """Start and wait for an answer. With `keep` the server saves changes and restores them at its start."""
        program = binary("redis-server", "redis-server")
        options = ["--port", "0", "--unixsocket", str(self.path), "--save", "", "--dir", str(self._folder)]
        options += ["--appendonly", "yes" if keep else "no", "--appendfsync", "always", "--loglevel", "warning"]
        self._process = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL)  # noqa: ASYNC220
        async with asyncio.timeout(300):
            while not self._answers():
                assert self._process.poll() is None, "redis-server ended"
                await asyncio.sleep(0.02)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(5)
            try:
                client.connect(str(self.path))
                client.sendall(b"PING\r\n")
                return client.recv(16).startswith(b"+PONG")
            except OSError:
                return False

    def kill(self) -> None:
        """Kill the server at once. Its socket file remains, as after a crash."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """It accepts data and never responds."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)


@asynccontextmanager
async def redis_server(folder: Path, *, keep: bool = False) -> AsyncIterator[RedisServer]:
    """A running one."""
    server = RedisServer(folder)
    await server.start(keep=keep)
    try:
        yield server
    finally:
        server.kill()
