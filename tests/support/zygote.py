"""A process with the modules of the gateway imported, which forks for each start of `headrace` and of its workers.

The imports take most of the CPU time of a start. Run as `python -m tests.support.zygote FD`, where FD is a socket. Each
message on it orders one start: the command line, and what else a new process inherits from its parent. See `forked.py`
for the client, and `forked_workers.py` for a gateway that orders its workers.
"""

import contextlib
import fcntl
import gc
import importlib
import os
import resource
import selectors
import signal
import socket
import sys
import time

import msgspec

MAX_MESSAGE = 1 << 20
MAX_FDS = 128
STATUS = 3
"""The place of the socket for the status among the file descriptors of a message."""

MODULES = (
    "gateway.process.serve",
    "gateway.process.app",
    "gateway.process.admin_backend",
    "gateway.process.first_request",
    "gateway.process.supervisor.child",
    "gateway.process.supervisor.supervisor",
    "gateway.admin.front",
    "gateway.admin.playground.listener",
    "gateway.features.alerts.metrics",
    "gateway.features.batches.fronts.anthropic",
    "gateway.features.batches.fronts.openai",
    "gateway.features.batches.metrics",
    "gateway.features.batches.plane",
    "gateway.features.experiments.feedback_front",
    "gateway.features.experiments.inbox",
    "gateway.features.journal.live",
    "gateway.features.pipelines.graphs",
    "gateway.features.placement.local",
    "gateway.features.recording.metrics",
    "gateway.features.requests.metrics",
    "gateway.features.rollouts.metrics",
    "gateway.features.rollouts.warm",
    "gateway.features.scaling.actuator",
    "gateway.features.scaling.metrics",
    "gateway.features.shadow.metrics",
    "gateway.features.shadow.plane",
    "gateway.features.stored.conversations",
    "gateway.features.stored.stored_responses",
    "gateway.features.usage.metrics",
    "gateway.fronts.anthropic",
    "gateway.fronts.apps",
    "gateway.fronts.oip_http",
    "gateway.fronts.passed",
    "gateway.fronts.predict_v1",
    "gateway.fronts.responses",
    "gateway.traffic.discovery.discoverer",
)
"""What gateways of tests import, besides what these modules import in turn. A gateway imports most of them late."""


class Start(msgspec.Struct, frozen=True):
    """The start of one process.

    Sent with file descriptors: stdin, stdout, stderr, a socket for its status, and those of `inherited`.
    """

    arguments: list[str]
    environment: dict[str, str]
    folder: str
    open_files: tuple[int, int]
    """The limits of open files, soft and hard."""
    inherited: tuple[int, ...] = ()
    """The numbers of the other file descriptors in the process."""
    orders_workers: bool = False
    """Whether it is a gateway that orders its workers here."""


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
    from tests.support.forked_workers import fork_workers

    for module in MODULES:
        importlib.import_module(module)
    gc.freeze()
    assert len(os.listdir("/proc/self/task")) == 1, "a thread would be missing in the children"
    child = _children(socket.socket(fileno=int(sys.argv[1])))
    if child is not None:
        start, orders = child
        if orders is not None:
            fork_workers(orders)
        sys.argv = [gateway.__main__.__file__, *start.arguments]
        gateway.__main__.main()


def _children(client: socket.socket) -> tuple[Start, socket.socket | None] | None:
    """Serve the client and the gateways that it has started. Returns in each child with its start, and the socket on
    which a gateway orders workers; in the zygote with None when the client has disconnected."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with selectors.DefaultSelector() as ready:
        ready.register(client, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if not isinstance(key.fileobj, socket.socket):
                    _report_end(ready, key)
                    continue
                message, fds, _, _ = socket.recv_fds(key.fileobj, MAX_MESSAGE, MAX_FDS)
                if not message and key.fileobj is client:
                    return None
                if not message:
                    ready.unregister(key.fileobj)
                    key.fileobj.close()
                    continue
                start = msgspec.json.decode(message, type=Start)
                mine, theirs = _orders(start)
                pid = os.fork()
                if pid == 0:
                    _forget(ready, mine)
                    return start, _become(start, fds, None if theirs is None else theirs.detach())
                status = socket.socket(fileno=fds.pop(STATUS))
                for fd in fds:
                    os.close(fd)
                _send(status, Started(pid))
                ready.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, status))
                if mine is not None and theirs is not None:
                    theirs.close()
                    ready.register(mine, selectors.EVENT_READ)


def _orders(start: Start) -> tuple[socket.socket, socket.socket] | tuple[None, None]:
    """The ends of the zygote and of a gateway of the socket for its workers."""
    if not start.orders_workers:
        return None, None
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def _forget(ready: selectors.BaseSelector, mine: socket.socket | None) -> None:
    """In a child: let no object of the zygote close a file whose number is given to another one."""
    if mine is not None:
        mine.detach()
    for key in ready.get_map().values():
        for each in (key.fileobj, key.data and key.data[1]):
            if isinstance(each, socket.socket):
                each.detach()
    ready.close()


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


def _become(start: Start, fds: list[int], orders: int | None) -> socket.socket | None:
    """Reset the state of this process to that of a new process. Returns the socket for its workers."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if start.arguments[0] == "worker":
        os.setsid()
    moved = _keep(dict(zip((0, 1, 2, *start.inherited), fds[:STATUS] + fds[STATUS + 1 :], strict=True)), orders)
    resource.setrlimit(resource.RLIMIT_NOFILE, start.open_files)
    os.chdir(start.folder)
    os.environ.clear()
    os.environ.update(start.environment)
    time.tzset()
    return moved


def _keep(files: dict[int, int], orders: int | None) -> socket.socket | None:
    """Give files their numbers, and close all others except the socket, whose number is a free one."""
    free, most = max(files) + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    copies = {number: fcntl.fcntl(fd, fcntl.F_DUPFD, free) for number, fd in files.items()}
    own = -1 if orders is None else fcntl.fcntl(orders, fcntl.F_DUPFD, free)
    os.closerange(3, free)
    for number, fd in copies.items():
        os.dup2(fd, number)
    if own < 0:
        os.closerange(free, most)
        return None
    os.dup2(own, free, inheritable=False)
    os.closerange(free + 1, most)
    return socket.socket(fileno=free)


if __name__ == "__main__":
    main()
