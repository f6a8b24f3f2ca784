"""A real Triton of the test's own: `with triton(repository) as server`."""

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from loadtests.peers import triton as peer
from loadtests.servers import StartError, child, free_ports, log_tail
from loadtests.venvs import InstallError
from tests.support.absent import absent

START_SECONDS = 600.0
ATTEMPTS = 3
EXPLICIT = ("--model-control-mode=explicit", "--load-model=*")


@dataclass(frozen=True, slots=True)
class Triton:
    """A running one."""

    ports: peer.Ports
    pid: int
    folder: Path

    @property
    def http(self) -> str:
        """`HOST:PORT`, as its clients require it."""
        return f"127.0.0.1:{self.ports.http}"

    @property
    def grpc(self) -> str:
        return f"127.0.0.1:{self.ports.grpc}"

    def log(self, lines: int = 30) -> str:
        """The end of its output."""
        return log_tail("triton", self.folder, lines)


@contextlib.contextmanager
def triton(repository: Path, options: Sequence[str] = EXPLICIT) -> Iterator[Triton]:
    """Started on free ports, ready when its models are; stopped with its children at the end.

    Its log is shown when the block fails. If the packages cannot be installed, the test reports that.
    """
    try:
        venv = peer.install()
    except InstallError as error:
        absent(f"a real Triton: {error}")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-triton-")))
        for attempt in range(1, ATTEMPTS + 1):
            try:
                server = stack.enter_context(_started(venv, repository, options, folder))
                break
            except StartError as error:
                # Its ports were free a moment ago; another process may have been faster.
                if "already in use" not in str(error) or attempt == ATTEMPTS:
                    raise
        yield server


@contextlib.contextmanager
def _started(venv: Path, repository: Path, options: Sequence[str], folder: Path) -> Iterator[Triton]:
    ports = peer.Ports(*free_ports(3))
    cores = ",".join(str(core) for core in sorted(os.sched_getaffinity(0)))
    try:
        with child("triton", peer.launch(venv, repository, ports, options), cores, folder) as process:
            server = Triton(ports, process.pid, folder)
            end = time.monotonic() + START_SECONDS
            while not _ready(ports.http):
                if process.poll() is not None or time.monotonic() > end:
                    raise StartError(f"triton is not ready:\n{server.log(200)}")
                time.sleep(0.1)
            try:
                yield server
            except BaseException as error:
                error.add_note(f"triton's log:\n{server.log()}")
                raise
    finally:
        peer.sweep(ports)


def _ready(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=300)
    try:
        connection.request("GET", "/v2/health/ready")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
