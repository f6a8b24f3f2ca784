"""Compiles grammars first in processes that the kernel ends when a grammar takes too much time or memory.

llguidance bounds its own work by counters that do not cover all of it: `{"type": "integer", "multipleOf": 9999991}`
builds millions of states before the first counter is read, and no thread can be stopped. A grammar that has passed here
takes about the same resources when the runtime compiles it.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from adapters.errors import Unavailable
from runtimes.llm.grammar.build import CannotBuild, Kind, Vocabulary
from runtimes.llm.grammar.worker import LENGTH, GrammarJob, Outcome, framed

if TYPE_CHECKING:
    _End = weakref.finalize[[subprocess.Popen[bytes], list[socket.socket]], "Sandbox"]
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from adapters.errors import CapacityError

_FULL = "Too many grammars are being compiled: try again later."


class Turns:
    """`places` in all, one for each tenant. Up to `most` wait, and up to `most_of_one` of a tenant's."""

    def __init__(self, places: int, *, most: int, most_of_one: int) -> None:
        self._places = asyncio.Semaphore(places)
        self._own: dict[str, asyncio.Lock] = {}
        self._waiting: Counter[str] = Counter()
        self._most = most
        self._most_of_one = most_of_one

    @asynccontextmanager
    async def turn(self, tenant: str, seconds: float) -> AsyncIterator[None]:
        """A place for the time within. Raises CapacityError if too many wait, or if none is free in `seconds`."""
        if self._waiting.total() >= self._most or self._waiting[tenant] >= self._most_of_one:
            raise CapacityError(_FULL)
        self._waiting[tenant] += 1
        own = self._own.setdefault(tenant, asyncio.Lock())
        try:
            try:
                async with asyncio.timeout(seconds):
                    await own.acquire()
                    try:
                        await self._places.acquire()
                    except BaseException:
                        own.release()
                        raise
            except TimeoutError:
                raise CapacityError("Other grammars take long to compile: try again later.") from None
            try:
                yield
            finally:
                self._places.release()
                own.release()
        finally:
            self._waiting[tenant] -= 1
            if not self._waiting[tenant]:
                del self._waiting[tenant], self._own[tenant]


CPU_SECONDS = 3.0
SECONDS = 15.0
MEMORY = 256 << 20
"""Memory of one grammar, in bytes."""
AT_ONCE = 2
"""Grammars that are compiled at a time."""

_INHERITED = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "HOME", "LANG")
_REASONS = {
    "cpu": f"it takes more than {CPU_SECONDS:g} s of processor time",
    "memory": f"it takes more than {MEMORY >> 20} MiB of memory",
    "crash": "it is nested too deeply",
}


class Sandbox:
    """Starts its processes with the first grammar. It belongs to one event loop, and to `AT_ONCE` callers at most."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._idle: list[socket.socket] = []
        self._starting = asyncio.Lock()
        self._end: _End | None = None

    async def cost(self, kind: Kind, text: str) -> int:
        """The bytes of memory that the grammar takes.

        Raises CannotBuild if its memory or its time exceeds the limits, and Unavailable if the machine has no memory
        for a trial.
        """
        end = await self._start()
        connection = self._idle.pop()
        try:
            outcome = await _request(connection, GrammarJob(kind, text, CPU_SECONDS, SECONDS, MEMORY))
        except (OSError, EOFError):
            connection.close()
            self._close(end)  # the system ended the process: another one is started for the next grammar
            raise Unavailable("The grammar could not be compiled: try again.", retry_after=1) from None
        except BaseException:
            connection.close()
            self._close(end)  # an unread outcome would be taken for the next grammar's
            raise
        if self._end is not end:  # closed meanwhile
            connection.close()
        else:
            self._idle.append(connection)
        if outcome.end == "time":
            raise Unavailable("The machine is too busy to compile the grammar: try again.", retry_after=1)
        if outcome.end != "itself":
            raise CannotBuild(_REASONS[outcome.end])
        return outcome.memory

    def close(self) -> None:
        """End all processes, now. The next grammar starts new ones."""
        if self._end is not None:
            self._close(self._end)

    def _close(self, end: "_End") -> None:
        end()
        if self._end is end:
            self._end, self._idle = None, []

    async def _start(self) -> "_End":
        async with self._starting:
            if self._end is not None:
                return self._end
            pairs = [socket.socketpair() for _ in range(AT_ONCE)]
            ours, theirs = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
            try:
                process = _spawn(theirs)
            except OSError:
                for connection in ours:
                    connection.close()
                raise Unavailable("No process could be started to compile the grammar.", retry_after=1) from None
            finally:
                for connection in theirs:
                    connection.close()
            # A connection in use is not here: the caller that waits for it sees it end, and closes it.
            end = weakref.finalize(self, _stop, process, ours)
            try:
                for connection in ours:
                    connection.setblocking(False)
                await asyncio.get_running_loop().sock_sendall(ours[0], framed(self._vocabulary))
            except BaseException:
                end()
                raise
            self._end, self._idle = end, ours
            return end


def _spawn(connections: list[socket.socket]) -> "subprocess.Popen[bytes]":
    """In a session of its own: a Ctrl-C in the terminal is the runtime's to handle."""
    numbers = [connection.fileno() for connection in connections]
    return subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-m", "runtimes.llm.grammar.worker", *map(str, numbers)],
        pass_fds=numbers, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, env={name: os.environ[name] for name in _INHERITED if name in os.environ},
    )  # fmt: skip


def _stop(process: "subprocess.Popen[bytes]", connections: list[socket.socket]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for connection in connections:
        connection.close()


async def _request(connection: socket.socket, job: GrammarJob) -> Outcome:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(connection, framed(job))
    (size,) = LENGTH.unpack(await _exactly(connection, LENGTH.size))
    return msgspec.msgpack.decode(await _exactly(connection, size), type=Outcome)


async def _exactly(connection: socket.socket, size: int) -> bytes:
    loop, data = asyncio.get_running_loop(), b""
    while len(data) < size:
        if not (more := await loop.sock_recv(connection, size - len(data))):
            raise EOFError
        data += more
    return data
