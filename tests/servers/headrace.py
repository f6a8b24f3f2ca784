"""Our tensor runtime as its users run it: `with headrace(repository) as server`."""

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtests.tensors import headrace as ours
from loadtests.tensors.targets import is_ready
from tests.servers.started import watched

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
    with tempfile.TemporaryDirectory(prefix="headrace-tensor-") as folder:
        log = Path(folder) / "headrace.log"

        def listening() -> ours.Ports | None:
            ports = ours.ports(log.read_text(errors="replace"))
            return ports if ports is not None and is_ready(ports.http) else None

        with watched("headrace", ours.launch(repository, options), Path(folder), listening) as (pid, ports):
            assert ports is not None
            yield Headrace(ports, pid, log)
