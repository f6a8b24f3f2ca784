"""A real Triton of the test's own: `with triton(repository) as server`."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtests.peers import triton as peer
from loadtests.servers import Launch
from tests.servers.started import started

EXPLICIT = ("--model-control-mode=explicit", "--load-model=*")


@dataclass(frozen=True, slots=True)
class Triton:
    """A running one."""

    ports: peer.Ports
    pid: int

    @property
    def http(self) -> str:
        """`HOST:PORT`, as its clients require it."""
        return f"127.0.0.1:{self.ports.http}"

    @property
    def grpc(self) -> str:
        return f"127.0.0.1:{self.ports.grpc}"


@contextlib.contextmanager
def triton(repository: Path, options: Sequence[str] = EXPLICIT) -> Iterator[Triton]:
    """Started on free ports, ready when its models are; stopped with its children at the end."""
    with contextlib.ExitStack() as stack:

        def launch(folder: Path, ports: tuple[int, ...], venv: Path) -> Launch:
            own = peer.Ports(*ports)
            stack.callback(peer.sweep, own)  # after its end
            return peer.launch(venv, repository, own, options)

        server = stack.enter_context(started("triton", peer.install, launch, ports=3, ready="/v2/health/ready"))
        yield Triton(peer.Ports(*server.ports), server.pid)
