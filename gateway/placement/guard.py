"""Runs a server of another project: forwards its log, stops it on a signal, and never lets it outlive the gateway.

A program of its own, with the standard library only: `python -I -S guard.py NAME SIGNAL SECONDS -- COMMAND…`. It stays
between the gateway and the server, which needs to know nothing of either: SIGTERM and the end of standard input, which
is a pipe from the gateway, both stop the server, its children and its children's children. Where the guard itself is
killed the kernel kills the server, and the gateway what is left of the group that all of them are in.
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
"""Bytes; a longer line is cut into several, so that each is written whole, whoever else writes to the same pipe."""
CHUNK = 65536
KILL_SECONDS = 5.0
"""For the kernel to end those that were killed."""
_STOP = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
_SET_DEATH_SIGNAL, _SET_SUBREAPER = 1, 36
_COLOURS = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")


class OutputLines:
    """Bytes as they come → one line of our log for each of theirs."""

    def __init__(self, name: str, write: Callable[[bytes], object]) -> None:
        self._name = name
        self._write = write
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """A progress bar's carriage return ends a line too."""
        *lines, self._rest = re.split(rb"[\r\n]+", self._rest + data)
        for line in lines:
            self._log(line)
        while len(self._rest) > MAX_LINE:
            self._log(self._rest[:MAX_LINE])
            self._rest = self._rest[MAX_LINE:]

    def close(self) -> None:
        """What came last need not have ended."""
        self._log(self._rest)
        self._rest = b""

    def _log(self, line: bytes) -> None:
        line = _COLOURS.sub(b"", line).rstrip()
        for start in range(0, len(line), MAX_LINE):
            text = line[start : start + MAX_LINE].decode(errors="replace")
            shown = "".join(sign if sign.isprintable() or sign == "\t" else "?" for sign in text)
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
        """Its exit status; negative for the signal that ended it."""
        _prctl(_SET_SUBREAPER, 1)
        try:
            self._server = subprocess.Popen(  # noqa: S603 - it is what an operator wrote, and no shell reads it
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
        """For the next thing to do."""
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
        """Everyone that came of it. Whose parent has ended is our child since then."""
        end = time.monotonic() + KILL_SECONDS
        while (pids := list(_descendants(os.getpid()))) and time.monotonic() < end:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._reap()
            time.sleep(0.01)

    def _reap(self) -> None:
        """Children that were somebody else's. The server's own end is looked for by who started it."""
        with contextlib.suppress(ChildProcessError):
            while True:
                self._server.poll()
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if ended is None:
                    return
                if ended.si_pid != self._server.pid:
                    os.waitpid(ended.si_pid, 0)

    def _read_to_the_end(self) -> None:
        """What is still in the pipe; one that is held open by somebody who hides is not waited for."""
        os.set_blocking(self._output, False)
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._output, CHUNK):
                self._lines.feed(data)
        self._lines.close()


def _descendants(ancestor: int) -> Iterator[int]:
    """The ids of all processes below it."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(entry.parent.name)] = int(entry.read_bytes().rpartition(b")")[2].split()[1])
    descendants = {ancestor}
    while below := {pid for pid, parent in parents.items() if parent in descendants} - descendants:
        descendants |= below
        yield from below


def _die_with(parent: int) -> Callable[[], None]:
    """What the server does before it is one."""

    def die_with() -> None:
        _prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return die_with


def _prctl(option: int, value: int) -> None:
    """On Linux; elsewhere the pipe has to do."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _to_stderr(line: bytes) -> None:
    with contextlib.suppress(OSError):  # nobody reads it any more
        os.write(sys.stderr.fileno(), line)


def _end_like(status: int) -> int:
    """By the same signal, if it was one."""
    if status < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


def main(arguments: list[str]) -> int:
    """The server's exit status."""
    name, stop_signal, stop_seconds, _, *command = arguments
    return _end_like(Guard(name, int(stop_signal), float(stop_seconds)).run(command))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
