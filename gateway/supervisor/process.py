"""A worker as the supervisor sees it: a child process, what it is asked, and its end."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import aiohttp
import msgspec

from gateway.app import StartError
from gateway.supervisor.orders import Orders, Report, decode, encode

log = logging.getLogger(__name__)

State = Literal["starting", "ready", "draining"]
START_SECONDS = 120.0
ASK_SECONDS = 10.0
LOOK_SECONDS = 1.0
SILENT_SECONDS = 15.0
"""A worker that answers nothing for that long is stuck, and is replaced."""
STOP_SECONDS = 10.0


class WorkerLost(Exception):
    """It ended, or did not answer."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a worker answered."""

    status: int
    body: bytes


class WorkerProcess:
    """`start` it, `ask` it, `stop` it."""

    def __init__(self, serial: int, orders: Orders) -> None:
        self.serial = serial
        self.slot = orders.slot
        self.state: State = "starting"
        self.since = time.monotonic()
        self.orders = orders
        self._gone: asyncio.Task[str] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._session: aiohttp.ClientSession | None = None
        self._looking: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """While it runs."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    @property
    def has_begun(self) -> bool:
        """Whether there is, or was, a process."""
        return self._process is not None

    # ── begin ─────────────────────────────────────────────────────────────────────────────────────────

    async def start(self, limit_slot: int, inherited: Sequence[int]) -> None:
        """Returns when it can be asked. Raises `StartError` with its reason, `WorkerLost` when it gave none."""
        reader, writer = os.pipe()
        orders = msgspec.structs.replace(self.orders, report=writer, limit_slot=limit_slot)
        try:
            await self._spawn((*inherited, writer), encode(orders))
        except OSError as error:
            os.close(reader)
            raise WorkerLost(f"could not be started: {error.strerror}") from None
        finally:
            os.close(writer)
        try:
            async with asyncio.timeout(START_SECONDS):
                line = await _read_line(reader)
        except TimeoutError:
            await self.stop()
            raise WorkerLost(f"was not ready within {START_SECONDS:g} s") from None
        if not line:
            raise WorkerLost(await self.ended())
        if why := decode(line, Report).error:
            await self.ended()
            raise StartError(why)
        self.state, self.since = "ready", time.monotonic()
        self._looking = asyncio.create_task(self._look())

    async def _spawn(self, inherited: Sequence[int], orders: bytes) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway", "worker", str(self.slot)),
            stdin=asyncio.subprocess.PIPE,
            pass_fds=inherited,
            start_new_session=True,  # a Ctrl-C is for the supervisor, which drains its workers
        )
        self._gone = asyncio.create_task(self._end(self._process), name=f"worker {self.slot}")
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):  # it died on the spot, which `gone` tells
            self._process.stdin.write(orders + b"\n")
            await self._process.stdin.drain()

    async def _end(self, process: asyncio.subprocess.Process) -> str:
        code = await process.wait()
        if self._looking is not None:
            self._looking.cancel()
        if self._session is not None:
            await self._session.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.orders.control)
        return f"ended with status {code}" if code >= 0 else f"was killed by signal {-code}"

    async def _look(self) -> None:
        """Ask for a sign of life, for ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.ask("GET", "/alive", seconds=SILENT_SECONDS)
            except WorkerLost:
                with contextlib.suppress(TimeoutError):  # it may be ending, which is no illness
                    await asyncio.wait_for(self.ended(), LOOK_SECONDS)
                if self.pid is not None:
                    log.error("worker %d (pid %d) is stuck: killed", self.slot, self.pid)
                    self._kill()

    # ── ask ───────────────────────────────────────────────────────────────────────────────────────────

    async def ask(self, method: str, path: str, body: bytes = b"", *, seconds: float = ASK_SECONDS) -> Reply:
        """What it says to that. Raises `WorkerLost`."""
        if self.state == "starting" or self.pid is None:
            raise WorkerLost("does not run")
        if self._session is None:
            connector = aiohttp.UnixConnector(path=self.orders.control)
            self._session = aiohttp.ClientSession("http://worker", connector=connector)
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            async with self._session.request(method, path, data=body, timeout=timeout) as response:
                return Reply(response.status, await response.read())
        except (aiohttp.ClientError, TimeoutError, OSError, RuntimeError) as error:  # RuntimeError: closed by its end
            raise WorkerLost(f"did not answer: {error or type(error).__name__}") from None

    # ── end ───────────────────────────────────────────────────────────────────────────────────────────

    async def drain(self, seconds: float) -> bytes:
        """Let its requests end, for at most `seconds`; what it counted. Raises `WorkerLost`."""
        self.state = "draining"
        return (await self.ask("POST", "/drain", seconds=seconds + ASK_SECONDS)).body

    async def stop(self) -> str:
        """End it now; how it ended."""
        if self._looking is not None:
            self._looking.cancel()
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL if self.state == "starting" else signal.SIGINT)
            try:
                return await asyncio.wait_for(self.ended(), STOP_SECONDS)
            except TimeoutError:
                log.warning("worker %d does not stop; killed", self.slot)
                self._kill()
        return await self.ended()

    async def ended(self) -> str:
        """Wait until it has; how it ended."""
        assert self._gone is not None
        return await asyncio.shield(self._gone)

    def _kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()


async def _read_line(fd: int) -> bytes:
    """What a pipe has until a line's or its own end; the pipe is closed then."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb", buffering=0)
    )
    try:
        return await reader.readline()
    finally:
        transport.close()
