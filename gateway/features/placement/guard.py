"""Runs a server of another project: forwards its log, stops it on a signal, and never lets it outlive the gateway.

A separate program that uses only the standard library: `python -I -S guard.py NAME SIGNAL SECONDS -- COMMAND…`. It runs
between the gateway and the server. SIGTERM and the end of standard input, which is a pipe from the gateway, both stop
the server with all of its descendants. If the guard itself is killed, the kernel kills the server, and the gateway
kills the rest of their process group.
"""

import contextlib
import ctypes
import os
import re
import resource
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

MAX_LINE = 3500
"""Bytes; a longer line is split, so that each part is written atomically although other processes write to the same
pipe.
"""
CHUNK = 65536
KILL_SECONDS = 5.0
"""Seconds for the kernel to end killed processes."""
_STOP = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
_SET_DEATH_SIGNAL, _SET_SUBREAPER = 1, 36
_COLOURS = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")


def printable(text: str) -> str:
    """A server's text in a log: control characters would be terminal commands, or forge another line."""
    return "".join(sign if sign.isprintable() or sign == "\t" else "?" for sign in text)


class OutputLines:
    """Converts the server's output to lines of the gateway's log."""

    def __init__(self, name: str, write: Callable[[bytes], object]) -> None:
        self._name = name
        self._write = write
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """The carriage return of a progress bar ends a line too."""
        *lines, self._rest = re.split(rb"[\r\n]+", self._rest + data)
        for line in lines:
            self._log(line)
        while len(self._rest) > MAX_LINE:
            self._log(self._rest[:MAX_LINE])
            self._rest = self._rest[MAX_LINE:]

    def close(self) -> None:
        """Log the last line, which may lack its end."""
        self._log(self._rest)
        self._rest = b""

    def _log(self, line: bytes) -> None:
        line = _COLOURS.sub(b"", line).rstrip()
        for start in range(0, len(line), MAX_LINE):
            text = line[start : start + MAX_LINE].decode(errors="replace")
            shown = printable(text)
            now = time.time()
            stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
            self._write(f"{stamp},{int(now * 1000) % 1000:03} INFO {self._name} {shown}\n".encode())


class Guard:
    """One server, from its start to its end."""

    def __init__(self, name: str, stop_signal: int, stop_seconds: float) -> None:
        self._stop_signal = stop_signal
        self._stop_seconds = stop_seconds
        self._lines = OutputLines(name, _to_stderr)
        self._deadline: float | None = None
        self._wakes, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (*_STOP, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)  # they wake the selector

    def run(self, command: list[str]) -> int:
        """The server's exit status; negative for the signal that ended it."""
        _prctl(_SET_SUBREAPER, 1)
        try:
            self._server = subprocess.Popen(  # noqa: S603 - an operator's command, without a shell
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                preexec_fn=_die_with(os.getpid()),
            )
        except OSError as error:
            _to_stderr(f"{command[0]} cannot be started: {error.strerror}\n".encode())
            return 127
        assert self._server.stdout is not None
        self._output = self._server.stdout.fileno()
        with selectors.DefaultSelector() as sources:
            for source in (self._wakes, self._output, sys.stdin.fileno()):
                sources.register(source, selectors.EVENT_READ)
            while self._server.poll() is None:
                self._wait(sources)
        self._kill()
        self._read_to_the_end()
        return self._server.returncode

    def _wait(self, sources: selectors.BaseSelector) -> None:
        """Wait for the next event."""
        left = None if self._deadline is None else self._deadline - time.monotonic()
        if left is not None and left <= 0:
            self._kill()
            return
        for key, _ in sources.select(left):
            data = os.read(key.fd, CHUNK)
            if not data:
                sources.unregister(key.fd)
            if key.fd == self._output:
                self._lines.feed(data)
            elif key.fd == self._wakes:
                self._reap()
            if (key.fd == self._wakes and _STOP.intersection(data)) or (key.fd == sys.stdin.fileno() and not data):
                self._stop()

    def _stop(self) -> None:
        if self._deadline is None:
            self._deadline = time.monotonic() + self._stop_seconds
            self._server.send_signal(self._stop_signal)

    def _kill(self) -> None:
        """Kill every descendant. A process whose parent has ended is a child of the guard."""
        end = time.monotonic() + KILL_SECONDS
        while (pids := list(_descendants(os.getpid()))) and time.monotonic() < end:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._reap()
            time.sleep(0.01)

    def _reap(self) -> None:
        """Reap adopted children. The server itself is reaped through its `Popen`."""
        with contextlib.suppress(ChildProcessError):
            while True:
                self._server.poll()
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if ended is None:
                    return
                if ended.si_pid != self._server.pid:
                    os.waitpid(ended.si_pid, 0)

    def _read_to_the_end(self) -> None:
        """Read the rest of the pipe without waiting for a descendant that still holds it open."""
        os.set_blocking(self._output, False)
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._output, CHUNK):
                self._lines.feed(data)
        self._lines.close()


def _descendants(ancestor: int) -> Iterator[int]:
    """The ids of all descendants of a process."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(entry.parent.name)] = int(entry.read_bytes().rpartition(b")")[2].split()[1])
    descendants = {ancestor}
    while below := {pid for pid, parent in parents.items() if parent in descendants} - descendants:
        descendants |= below
        yield from below


def _die_with(parent: int) -> Callable[[], None]:
    """The function that the server's process runs before `exec`."""

    def die_with() -> None:
        _prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return die_with


def _prctl(option: int, value: int) -> None:
    """Linux only; on other systems the pipe alone stops the server."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _to_stderr(line: bytes) -> None:
    with contextlib.suppress(OSError):  # the other end of the pipe is closed
        os.write(sys.stderr.fileno(), line)


def _end_like(status: int) -> int:
    """End by the server's signal, if a signal ended it."""
    if status < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


def main(arguments: list[str]) -> int:
    """Run the guard; returns the server's exit status."""
    name, stop_signal, stop_seconds, _, *command = arguments
    return _end_like(Guard(name, int(stop_signal), float(stop_seconds)).run(command))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
