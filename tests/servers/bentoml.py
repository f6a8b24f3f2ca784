"""A real BentoML with `programs/bentoml_service.py`."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from loadtests.peers.bentoml import REQUIREMENTS
from loadtests.servers import Launch
from loadtests.tensors.peer import SINGLE_THREAD
from loadtests.venvs import ensure
from tests.servers.programs import __path__ as programs
from tests.servers.started import Started, started

VERSION = "1.4.39"


def install() -> Path:
    """Install BentoML with pandas, for its data frames."""
    return ensure("bentoml-pandas", (*REQUIREMENTS, "pandas==2.3.3"))


def launch(folder: Path, ports: tuple[int, ...], venv: Path) -> Launch:
    """`bentoml serve`, with everything that it writes in its own folder, and no news sent home."""
    shutil.copy(Path(programs[0]) / "bentoml_service.py", folder / "service.py")
    where = ["--host", "127.0.0.1", "--port", str(ports[0]), "--working-dir", str(folder)]
    env = {"BENTOML_HOME": str(folder / "home"), "BENTOML_DO_NOT_TRACK": "True", **SINGLE_THREAD}
    return Launch([str(venv / "bin/bentoml"), "serve", "service:Zoo", *where], env=env)


@contextlib.contextmanager
def bentoml() -> Iterator[Started]:
    """Ready when its service is."""
    with started("bentoml", install, launch, ready="/readyz") as server:
        yield server
