"""The process of a worker: starts it, reads its packets and its output, and cleans up after it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from runtimes.tensor.instances.frames import MAX_PACKET, Arena
from runtimes.tensor.instances.worker import Job, ModelLog
from runtimes.tensor.interfaces import ModelLoadError
from runtimes.tensor.requests.messages import files_of

CLOSE_SECONDS: Final = 5.0
_ROOT: Final = str(Path(__file__).parents[3])
_MAX_LAST_WORDS: Final = 16


class ChildProcess:
    """Runs a program: `instances.child` for one model. Packets go over a socket, and its end is detected at once,
    without a thread.

    `on_exit` gets how it ended, after the last packet.
    """

    def __init__(
        self,
        job: Job,
        on_packet: Callable[[bytes], None],
        on_exit: Callable[[str], None],
        *,
        with_files: bool = False,
        program: str = "runtimes.tensor.instances.child",
    ) -> None:
        """`with_files`: packets may bring files, which `on_packet` finds in `files` and closes.

        Raises `ModelLoadError` if the system has no memory or descriptors for it.
        """
        self.files: list[int] = []
        self.log = ModelLog(job.name)
        self._loop = asyncio.get_running_loop()
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self._on_packet = on_packet
        self._on_exit = on_exit
        try:
            with contextlib.ExitStack() as stack:
                self._open(program, job, stack)
                self._files = stack.pop_all()
        except OSError as error:
            raise ModelLoadError(f"no process could be started with {_interpreter(job)}: {error.strerror}") from None
        self.pid = self._process.pid
        for fd in (self._socket.fileno(), self._printed):
            os.set_blocking(fd, False)
        self._loop.add_reader(self._socket.fileno(), self._readable)
        self._loop.add_reader(self._printed, self._log_output)
        self._loop.add_reader(self._pidfd, self._exited)
        self.send = self._socket.send
        self.socket = self._socket
        self._receive = self._receive_with_files if with_files else self._receive_plain

    def _open(self, program: str, job: Job, stack: contextlib.ExitStack) -> None:
        """Open the resources of the process. If one fails, the others are closed."""
        self.inputs, self.outputs = Arena(), Arena()
        stack.callback(self.inputs.close)
        stack.callback(self.outputs.close)
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stack.callback(self._socket.close)
        with theirs:
            self._printed, printing = os.pipe()
            stack.callback(os.close, self._printed)
            try:
                self._process = _spawn(program, job, printing, (theirs.fileno(), self.inputs.fd, self.outputs.fd))
            finally:
                os.close(printing)
        try:
            self._pidfd = os.pidfd_open(self._process.pid)
        except OSError:
            self._process.kill()
            self._process.wait()
            raise
        stack.callback(os.close, self._pidfd)

    def kill(self) -> None:
        """Kill the process and those that it started."""
        if not self.gone.done():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    async def aclose(self) -> None:
        """Close the connection, wait a short time for its cleanup, then kill it."""
        if self.gone.done():
            return
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        await asyncio.wait([self.gone], timeout=CLOSE_SECONDS)
        self.kill()
        await asyncio.wait([self.gone])

    def _receive_plain(self) -> bytes:
        return self._socket.recv(MAX_PACKET)

    def _receive_with_files(self) -> bytes:
        data, ancillary, _, _ = self._socket.recvmsg(MAX_PACKET, 256)
        self.files = files_of(ancillary)
        return data

    def _readable(self) -> None:
        try:
            data = self._receive()
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._on_packet(data)
        else:  # it ends, or its model has closed a descriptor of the runtime
            self._loop.remove_reader(self._socket.fileno())
            self._loop.call_later(CLOSE_SECONDS, self.kill)

    def _log_output(self) -> None:
        """Read all output of the process, so that the process never blocks."""
        try:
            data = os.read(self._printed, 65536)
        except BlockingIOError:
            return
        if data:
            self.log.feed(data)
        else:
            self._loop.remove_reader(self._printed)

    def _exited(self) -> None:
        self._loop.remove_reader(self._pidfd)
        self._loop.remove_reader(self._printed)
        self._loop.remove_reader(self._socket.fileno())
        with contextlib.suppress(OSError):  # until there is nothing left
            for _ in range(_MAX_LAST_WORDS):
                if data := self._receive():
                    self._on_packet(data)
        with contextlib.suppress(OSError):
            for _ in range(_MAX_LAST_WORDS):
                self.log.feed(os.read(self._printed, 65536))
        self.log.flush()
        # Before it is reaped: until then no other process can have its number.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        code = self._process.wait()
        self._files.close()
        self.gone.set_result(None)
        self._on_exit(_ending(code))


def _interpreter(job: Job) -> str:
    """The Python of another environment, if the model's packages conflict with the runtime's."""
    return job.config.parameters.get("interpreter", sys.executable)


def _spawn(program: str, job: Job, printing: int, files: tuple[int, int, int]) -> subprocess.Popen[bytes]:
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [_ROOT, environment.get("PYTHONPATH")]))
    environment["PYTHONUNBUFFERED"] = "1"
    # Threads that spin while they wait take the cores from those that compute.
    environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if job.device.threads:
        for library in ("OMP", "OPENBLAS", "MKL"):
            environment[f"{library}_NUM_THREADS"] = str(job.device.threads)
    return subprocess.Popen(  # noqa: S603
        [_interpreter(job), "-m", program, *map(str, (*files, os.getpid()))],
        stdin=subprocess.DEVNULL,
        stdout=printing,
        stderr=printing,
        pass_fds=files,
        env=environment,
        start_new_session=True,  # a Ctrl-C is for the server, which ends its processes itself
    )


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
