"""OpenVINO Model Server's stand-in, whose binary cannot be had."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from loadtests.servers import REPOSITORY, Launch
from loadtests.tensors.peer import SINGLE_THREAD
from tests.servers.started import Started, started

VERSION = "its API 2026"


def launch(folder: Path, ports: tuple[int, ...], venv: Path) -> Launch:
    """The stand-in, run by this interpreter."""
    env = {"PYTHONPATH": str(REPOSITORY), **SINGLE_THREAD}
    return Launch([sys.executable, "-m", "tests.servers.stand_ins.ovms", *map(str, ports)], env=env)


@contextlib.contextmanager
def ovms() -> Iterator[Started]:
    """Its first port is REST's and its second gRPC's."""
    with started("ovms", lambda: Path(sys.prefix), launch, ports=2, ready="/v2/health/ready") as server:
        yield server
