"""The supervisor's side of a worker: a child process with a control socket."""

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

from adapters.lasting import lasting
from gateway.errors import StartError
from gateway.process.supervisor.messages import StartMessage, StartReport, decode, encode

log = logging.getLogger(__name__)

State = Literal["starting", "ready", "draining"]
START_SECONDS = 120.0
CALL_SECONDS = 10.0
CHECK_SECONDS = 1.0
UNRESPONSIVE_SECONDS = 15.0
"""A worker that does not respond for this long is replaced."""
STOP_SECONDS = 10.0


class WorkerLost(Exception):
    """The worker ended or did not respond."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A worker's response."""

    status: int
    body: bytes


class WorkerProcess:
    """`start`, `call`, then `drain` or `stop`."""

    def __init__(self, serial: int, message: StartMessage) -> None:
        self.serial = serial
        self.slot = message.slot
        self.state: State = "starting"
        self.since = time.monotonic()
        self.message = message
        self._gone: asyncio.Task[str] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._session: aiohttp.ClientSession | None = None
        self._checking: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The process id while the process runs."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    @property
    def has_started(self) -> bool:
        """Whether a process was started."""
        return self._process is not None

    # ── start ─────────────────────────────────────────────────────────────────────────────────────────

    async def start(self, limit_slot: int, inherited: Sequence[int]) -> None:
        """Returns when the worker is ready. Raises `StartError` with a reported error, else `WorkerLost`."""
        reader, writer = os.pipe()
        message = msgspec.structs.replace(self.message, report=writer, limit_slot=limit_slot)
        try:
            await self._spawn((*inherited, writer), encode(message))
        except OSError as error:
            os.close(reader)
            raise WorkerLost(f"cannot start: {error.strerror}") from None
        finally:
            os.close(writer)
        try:
            async with asyncio.timeout(START_SECONDS):
                line = await _read_line(reader)
        except TimeoutError:
            await self.stop()
            raise WorkerLost(f"was not ready after {START_SECONDS:g} s") from None
        if not line:
            raise WorkerLost(await self.ended())
        if why := decode(line, StartReport).error:
            await self.ended()
            raise StartError(why)
        self.state, self.since = "ready", time.monotonic()
        self._checking = asyncio.create_task(lasting(f"checks of worker {self.slot}", self._check))

    async def _spawn(self, inherited: Sequence[int], message: bytes) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway", "worker", str(self.slot)),
            stdin=asyncio.subprocess.PIPE,
            pass_fds=inherited,
            start_new_session=True,  # Ctrl-C goes to the supervisor only, which drains its workers
        )
        self._gone = asyncio.create_task(self._end(self._process), name=f"worker {self.slot}")
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):  # the process ended at once, which `_gone` reports
            self._process.stdin.write(message + b"\n")
            await self._process.stdin.drain()

    async def _end(self, process: asyncio.subprocess.Process) -> str:
        code = await process.wait()
        if self._checking is not None:
            self._checking.cancel()
        if self._session is not None:
            await self._session.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.message.control)
        return f"ended with status {code}" if code >= 0 else f"was killed by signal {-code}"

    async def _check(self) -> None:
        """Check that the worker responds, until cancelled. Kill it if not."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await self.call("GET", "/alive", seconds=UNRESPONSIVE_SECONDS)
            except WorkerLost:
                with contextlib.suppress(TimeoutError):  # it may be about to end
                    await asyncio.wait_for(self.ended(), CHECK_SECONDS)
                if self.pid is not None:
                    log.error("worker %d (pid %d) does not respond: killed", self.slot, self.pid)
                    self._kill()

    # ── call ──────────────────────────────────────────────────────────────────────────────────────────

    async def call(self, method: str, path: str, body: bytes = b"", *, seconds: float = CALL_SECONDS) -> Reply:
        """Send a request to the control socket. Raises `WorkerLost`."""
        if self.state == "starting" or self.pid is None:
            raise WorkerLost("is not running")
        if self._session is None:
            connector = aiohttp.UnixConnector(path=self.message.control)
            self._session = aiohttp.ClientSession("http://worker", connector=connector)
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            async with self._session.request(method, path, data=body, timeout=timeout) as response:
                return Reply(response.status, await response.read())
        except (
            aiohttp.ClientError,
            TimeoutError,
            OSError,
            RuntimeError,
        ) as error:  # RuntimeError: the session was closed at the worker's end
            raise WorkerLost(f"did not respond: {error or type(error).__name__}") from None

    # ── end ───────────────────────────────────────────────────────────────────────────────────────────

    async def drain(self, seconds: float) -> bytes:
        """Wait for requests to end, for at most `seconds`. Returns the final metrics. Raises `WorkerLost`."""
        self.state = "draining"
        return (await self.call("POST", "/drain", seconds=seconds + CALL_SECONDS)).body

    async def stop(self) -> str:
        """Stop the process now. Returns how it ended."""
        if self._checking is not None:
            self._checking.cancel()
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL if self.state == "starting" else signal.SIGINT)
            try:
                return await asyncio.wait_for(self.ended(), STOP_SECONDS)
            except TimeoutError:
                log.warning("worker %d does not stop: killed", self.slot)
                self._kill()
        return await self.ended()

    async def ended(self) -> str:
        """Wait for the end of the process. Returns how it ended."""
        assert self._gone is not None
        return await asyncio.shield(self._gone)

    def _kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()


async def _read_line(fd: int) -> bytes:
    """Read a pipe up to the end of a line or of the pipe, then close it."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb", buffering=0)
    )
    try:
        return await reader.readline()
    finally:
        transport.close()
