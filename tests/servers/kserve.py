"""A real KServe with `programs/kserve_server.py`, alone or with a transformer before it."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loadtests.peers.kserve import REQUIREMENTS
from loadtests.servers import Launch
from loadtests.tensors.peer import SINGLE_THREAD
from loadtests.venvs import ensure
from tests.servers.programs import __path__ as programs
from tests.servers.started import Started, started
from tests.servers.sums import DESCRIBED

VERSION = "0.21.0"
DECLARED: dict[str, Any] = {
    "name": "kserve-v1",
    "inputs": DESCRIBED,
    "outputs": [{**one, "name": one["name"].replace("IN", "OUT")} for one in DESCRIBED],
}
"""Its first protocol, whose tensors a pool declares."""


def install() -> Path:
    """Install KServe like the benchmarks."""
    return ensure("kserve", REQUIREMENTS)


@contextlib.contextmanager
def kserve(predictor: Started | None = None) -> Iterator[Started]:
    """Its first port is HTTP's and its second gRPC's. With a predictor it is the transformer before that one."""
    before = [] if predictor is None else [predictor.url().removeprefix("http://")]

    def launch(folder: Path, ports: tuple[int, ...], venv: Path) -> Launch:
        # Copied, since in its own folder it would hide the packages that it imports.
        program = shutil.copy(Path(programs[0]) / "kserve_server.py", folder / "model.py")
        return Launch([str(venv / "bin/python"), str(program), *map(str, ports), *before], env=SINGLE_THREAD)

    with started("kserve", install, launch, ports=2, ready="/v2/health/ready") as server:
        yield server
