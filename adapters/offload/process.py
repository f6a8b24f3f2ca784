"""The server's side of one worker process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

from adapters.offload import packets
from adapters.offload.jobs import CodecCall, Outcome, TimeExceeded

WALL_SECONDS: Final = 60.0
"""A job may take this time and five times its processor time: processors may be busy with other processes."""
_ROOT: Final = str(Path(__file__).parents[2])
_INHERITED: Final = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "TMPDIR", "TZ")
"""Variables of the server's environment that the worker inherits. Others may hold secrets."""


class CodecWorkerLost(Exception):
    """The process ended or timed out."""


class Process:
    """A worker. All methods but `kill` block, and belong to one thread."""

    def __init__(self, memory: int) -> None:
        """Raises `OSError` if the system cannot start a process."""
        self._socket, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = _spawn(theirs.fileno(), memory)
        except OSError:
            self._socket.close()
            raise

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def run(self, job: CodecCall, seconds: float) -> Outcome:
        """Run a job that may take so much processor time. A worker that exceeds it has ended.

        Raises `CodecWorkerLost`, and `OSError` where there is no memory for the arguments.
        """
        wall = WALL_SECONDS + 5 * seconds
        self._socket.settimeout(wall)
        question = packets.open_file()
        try:
            packets.write(question, job)
            socket.send_fds(self._socket, [packets.SECONDS.pack(seconds)], [question])
        finally:
            os.close(question)
        try:
            data, fds, _, _ = socket.recv_fds(self._socket, 1, 1)
        except TimeoutError:
            raise CodecWorkerLost(f"a job took longer than {wall:g} s") from None
        if not data or not fds:
            self.kill()
            if self._process.wait() == -signal.SIGPROF:
                return TimeExceeded()
            raise CodecWorkerLost("it ended before its result")
        try:
            outcome: Outcome = packets.read(fds[0])
            return outcome
        finally:
            os.close(fds[0])

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        """Stop the process and wait for its end."""
        self._socket.close()
        self._process.kill()
        self._process.wait()


def _spawn(channel: int, memory: int) -> subprocess.Popen[bytes]:
    environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [_ROOT, os.environ.get("PYTHONPATH")]))
    environment["OPENBLAS_NUM_THREADS"] = "1"
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "adapters.offload.worker", str(channel), str(memory)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=(channel,),
        env=environment,
        start_new_session=True,  # a Ctrl-C is for the server, which ends its processes itself
    )
