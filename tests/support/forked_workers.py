"""Starts the workers of a forked `headrace serve` as forks of the zygote too."""

import asyncio
import contextlib
import os
import resource
import socket
from collections.abc import Sequence
from pathlib import Path

from gateway.process.supervisor.process import WorkerLost, WorkerProcess
from tests.support.forked import ForkedProcess
from tests.support.zygote import MAX_FDS, Start


class ForkedWorker(ForkedProcess):
    """A worker. Its standard input is open until the supervisor ends, by which it notices the end."""

    _input: socket.socket

    @classmethod
    async def begin(cls, orders: socket.socket, slot: int, inherited: Sequence[int], message: bytes) -> "ForkedWorker":
        """`inherited` are the numbers of files that the worker has under the same numbers."""
        made = cls()
        read, made._input = socket.socketpair()
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        numbers = tuple(dict.fromkeys(inherited))
        order = Start(["worker", str(slot)], dict(os.environ), str(Path.cwd()), limits, numbers)
        await made._order(orders, order, [read.fileno(), 1, 2], numbers)
        read.close()
        await asyncio.to_thread(made._write, message)
        return made

    def _write(self, message: bytes) -> None:
        with contextlib.suppress(OSError):  # it has ended at once
            self._input.sendall(message)

    async def _end(self, reader: asyncio.StreamReader) -> int:
        try:
            return await super()._end(reader)
        finally:
            self._input.close()


def fork_workers(orders: socket.socket) -> None:
    """Let the supervisor of this process order its workers from the zygote."""

    async def spawn(self: WorkerProcess, inherited: Sequence[int], message: bytes) -> None:
        if len(inherited) > MAX_FDS - 4:
            raise WorkerLost("has more listeners than a message may have files")
        process = await ForkedWorker.begin(orders, self.slot, inherited, message + b"\n")
        self._process = process  # type: ignore[assignment]
        self._gone = asyncio.create_task(self._end(process), name=f"worker {self.slot}")  # type: ignore[arg-type]

    WorkerProcess._spawn = spawn  # type: ignore[method-assign]
