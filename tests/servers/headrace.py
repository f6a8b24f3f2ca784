"""Our tensor runtime as its users run it: `with headrace(repository) as server`."""

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtests.servers import StartError, child
from loadtests.tensors import headrace as ours
from loadtests.tensors.targets import is_ready

START_SECONDS = 600.0
EXPLICIT = ("--mode", "explicit", "--load", "*")


@dataclass(frozen=True, slots=True)
class Headrace:
    """A running one."""

    ports: ours.Ports
    pid: int
    log: Path

    @property
    def http(self) -> str:
        """`HOST:PORT`."""
        return f"127.0.0.1:{self.ports.http}"

    @property
    def grpc(self) -> str:
        return f"127.0.0.1:{self.ports.grpc}"

    def tail(self, lines: int = 60) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


@contextlib.contextmanager
def headrace(repository: Path, options: Sequence[str] = EXPLICIT) -> Iterator[Headrace]:
    """Started, with its models ready; stopped with its processes at the end. Its log is shown when the block fails."""
    cores = ",".join(str(core) for core in sorted(os.sched_getaffinity(0)))
    with (
        tempfile.TemporaryDirectory(prefix="headrace-tensor-") as folder,
        child("headrace", ours.launch(repository, options), cores, Path(folder)) as process,
    ):
        log = Path(folder) / "headrace.log"
        end = time.monotonic() + START_SECONDS
        while (ports := ours.ports(log.read_text(errors="replace"))) is None or not is_ready(ports.http):
            if process.poll() is not None or time.monotonic() > end:
                raise StartError(f"headrace is not ready:\n{log.read_text(errors='replace')}")
            time.sleep(0.05)
        server = Headrace(ports, process.pid, log)
        try:
            yield server
        except BaseException as error:
            error.add_note(f"headrace's log:\n{server.tail()}")
            raise
