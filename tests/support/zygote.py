"""A process with the modules of the gateway imported, which forks for each start of `headrace`.

The imports take most of the CPU time of a start. Run as `python -m tests.support.zygote FD`, where FD is a socket. Each
message on it orders one start: the command line, and what else a new process inherits from its parent. See `forked.py`
for the client.
"""

import contextlib
import gc
import os
import resource
import selectors
import signal
import socket
import sys
import time

import msgspec

MAX_MESSAGE = 1 << 20
MAX_FDS = 4


class Start(msgspec.Struct, frozen=True):
    """The start of one process. Sent with four file descriptors: stdin, stdout, stderr, and a socket for its status."""

    arguments: list[str]
    environment: dict[str, str]
    folder: str
    open_files: tuple[int, int]
    """The limits of open files, soft and hard."""


class Started(msgspec.Struct, frozen=True):
    """A line on the socket for the status: the process runs."""

    pid: int


class Ended(msgspec.Struct, frozen=True):
    """The last line on the socket for the status."""

    status: int
    """As `subprocess.Popen.returncode`."""


def main() -> None:
    """Fork until the client leaves. Each child becomes a gateway, with the entry point of the console script."""
    gc.disable()
    import sqlalchemy.dialects.sqlite  # noqa: F401

    import gateway.__main__
    import gateway.commands
    import gateway.serve
    import gateway.supervisor.child

    gc.freeze()
    assert len(os.listdir("/proc/self/task")) == 1, "a thread would be missing in the children"
    start = _children(socket.socket(fileno=int(sys.argv[1])))
    if start is not None:
        sys.argv = [gateway.__main__.__file__, *start.arguments]
        gateway.__main__.main()


def _children(client: socket.socket) -> Start | None:
    """Serve the client. Returns in each child with its start, and in the zygote with None when the client has
    disconnected."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with selectors.DefaultSelector() as ready:
        ready.register(client, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj is not client:
                    _report_end(ready, key)
                    continue
                message, fds, _, _ = socket.recv_fds(client, MAX_MESSAGE, MAX_FDS)
                if not message:
                    return None
                start = msgspec.json.decode(message, type=Start)
                pid = os.fork()
                if pid == 0:
                    _become(start, fds)
                    return start
                status = socket.socket(fileno=fds.pop())
                for fd in fds:
                    os.close(fd)
                _send(status, Started(pid))
                ready.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, status))


def _report_end(ready: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    pid, status = key.data
    assert isinstance(key.fileobj, int)
    ready.unregister(key.fileobj)
    os.close(key.fileobj)
    _, wait_status = os.waitpid(pid, 0)
    with status:
        _send(status, Ended(os.waitstatus_to_exitcode(wait_status)))


def _send(status: socket.socket, message: msgspec.Struct) -> None:
    with contextlib.suppress(OSError):  # its test has failed
        status.sendall(msgspec.json.encode(message) + b"\n")


def _become(start: Start, fds: list[int]) -> None:
    """Reset the state of this process to that of a new process."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, fd in enumerate(fds[:3]):
        os.dup2(fd, number)
    os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, start.open_files)
    os.chdir(start.folder)
    os.environ.clear()
    os.environ.update(start.environment)
    time.tzset()


if __name__ == "__main__":
    main()
