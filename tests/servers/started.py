"""A real server of any kind that a test starts: `with started(NAME, launch) as server`."""

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TypeVar

from loadtests.servers import Launch, StartError, child, free_ports, log_tail
from loadtests.venvs import InstallError
from tests.support.absent import absent

T = TypeVar("T")
START_SECONDS = 600.0
ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Started:
    """A running server. Its launcher defines the purpose of each port."""

    name: str
    ports: tuple[int, ...]
    pid: int
    folder: Path

    def url(self, port: int = 0) -> str:
        """The URL of a port, by its number."""
        return f"http://127.0.0.1:{self.ports[port]}"

    def log(self, lines: int = 40) -> str:
        """The end of its output."""
        return log_tail(self.name, self.folder, lines)


@contextlib.contextmanager
def started(
    name: str,
    install: Callable[[], Path],
    launch: Callable[[Path, tuple[int, ...], Path], Launch],
    *,
    ports: int = 1,
    ready: str,
    status: int = 200,
    seconds: float = START_SECONDS,
) -> Iterator[Started]:
    """`launch(folder, ports, venv)` on free ports; ready when a GET of `ready` at the first is answered with `status`.

    It is stopped with its children at the end, and its log is shown when the block fails. If its packages cannot be
    installed, the test reports that.
    """
    try:
        venv = install()
    except InstallError as error:
        absent(f"a real {name}: {error}")
    with contextlib.ExitStack() as stack:
        for attempt in range(1, ATTEMPTS + 1):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"headrace-{name}-")))
            free = tuple(free_ports(ports))
            try:
                is_ready = partial(answers, free[0], ready, status)
                pid, _ = stack.enter_context(watched(name, launch(folder, free, venv), folder, is_ready, seconds))
                break
            except StartError as error:
                # Its ports were free a moment ago; another process may have been faster.
                if "in use" not in str(error) or attempt == ATTEMPTS:
                    raise
        yield Started(name, free, pid, folder)


@contextlib.contextmanager
def watched(
    name: str, launch: Launch, folder: Path, ready: Callable[[], T], seconds: float = START_SECONDS
) -> Iterator[tuple[int, T]]:
    """The process id, and what `ready` has returned that is true. The process is stopped with its children at the end.

    Its log is shown when it does not become ready, and when the block fails.
    """
    cores = ",".join(str(core) for core in sorted(os.sched_getaffinity(0)))
    with child(name, launch, cores, folder) as process:
        end = time.monotonic() + seconds
        while not (readiness := ready()):
            if process.poll() is not None or time.monotonic() > end:
                raise StartError(f"{name} is not ready:\n{log_tail(name, folder, 200)}")
            time.sleep(0.05)
        try:
            yield process.pid, readiness
        except BaseException as error:
            error.add_note(f"{name}'s log:\n{log_tail(name, folder, 60)}")
            raise


def answers(port: int, path: str, status: int = 200, words: bytes = b"", key: str = "") -> bool:
    """Whether a GET on loopback is answered with this status, and with these words in the body."""
    connection = HTTPConnection("127.0.0.1", port, timeout=300)
    try:
        connection.request("GET", path, headers={"authorization": f"Bearer {key}"} if key else {})
        response = connection.getresponse()
        return response.status == status and words in response.read()
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
