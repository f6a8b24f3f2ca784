"""Starts `headrace` in a fork of a process that has imported it, in a fifth of the CPU time."""

import asyncio
import atexit
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import msgspec

from tests.support.zygote import Ended, Start, Started


class ForkedProcess:
    """A running `headrace ARGUMENTS`, with the interface of `asyncio.subprocess.Process`."""

    stderr: asyncio.StreamReader
    stdout: asyncio.StreamReader | None = None
    pid: int
    returncode: int | None = None
    _writer: asyncio.StreamWriter
    _ended: asyncio.Task[int]

    @classmethod
    async def start(
        cls,
        *arguments: str,
        env: Mapping[str, str],
        cwd: str | os.PathLike[str] | None = None,
        stdout: bool = False,
        orders_workers: bool = False,
    ) -> "ForkedProcess":
        """`stdout`: read it; otherwise it is inherited. `orders_workers`: its workers are forks too."""
        made = cls()
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        order = Start(list(arguments), dict(env), str(cwd or Path.cwd()), limits, orders_workers=orders_workers)
        made.stderr, error = await _pipe()
        output = 1
        if stdout:
            made.stdout, output = await _pipe()
        await made._order(_zygote(), order, [0, output, error])
        os.close(error)
        if stdout:
            os.close(output)
        return made

    async def _order(
        self, zygote: socket.socket, order: Start, standard: Sequence[int], inherited: Sequence[int] = ()
    ) -> None:
        mine, theirs = socket.socketpair()
        socket.send_fds(zygote, [msgspec.json.encode(order)], [*standard, theirs.fileno(), *inherited])
        theirs.close()
        reader, self._writer = await asyncio.open_connection(sock=mine)
        self.pid = msgspec.json.decode(await reader.readline(), type=Started).pid
        self._ended = asyncio.create_task(self._end(reader))

    async def _end(self, reader: asyncio.StreamReader) -> int:
        self.returncode = msgspec.json.decode(await reader.readline(), type=Ended).status
        self._writer.close()
        return self.returncode

    async def wait(self) -> int:
        """The exit status."""
        return await asyncio.shield(self._ended)

    def send_signal(self, number: int) -> None:
        """Raises ProcessLookupError if the process has ended."""
        if self.returncode is not None:
            raise ProcessLookupError
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    async def communicate(self) -> tuple[bytes, bytes]:
        """Output and errors, when it has ended."""
        assert self.stdout is not None
        out, error, _ = await asyncio.gather(self.stdout.read(), self.stderr.read(), self.wait())
        return out, error


async def _pipe() -> tuple[asyncio.StreamReader, int]:
    """A reader, and the file descriptor to write to."""
    read, write = os.pipe()
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read, "rb", 0)
    )
    return reader, write


@cache
def _zygote() -> socket.socket:
    """The connection to this test process's own zygote, which ends with it."""
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command: Sequence[str] = [sys.executable, "-m", "tests.support.zygote", str(theirs.fileno())]
    process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
    theirs.close()

    def end() -> None:
        mine.close()
        process.wait()

    atexit.register(end)
    return mine
