"""BentoML: one worker with adaptive batching."""

import functools
import shutil
from pathlib import Path

from loadtests.servers import Launch
from loadtests.tensors.peer import MODELS, ONE, OTHER, SINGLE_THREAD, Peer
from loadtests.venvs import ensure

REQUIREMENTS = ("bentoml==1.4.39", "numpy==2.4.6")


def launch(folder: Path, port: int, venv: Path) -> Launch:
    """`bentoml serve`, with everything that it writes in its own folder, and no news sent home."""
    shutil.copy(MODELS / "bentoml.py", folder / "service.py")
    where = ["--host", "127.0.0.1", "--port", str(port), "--working-dir", str(folder)]
    env = {"BENTOML_HOME": str(folder / "home"), "BENTOML_DO_NOT_TRACK": "True", **SINGLE_THREAD}
    return Launch([str(venv / "bin/bentoml"), "serve", "service:AddSub", *where], env=env)


BENTOML = Peer(
    "bentoml", functools.partial(ensure, "bentoml", REQUIREMENTS), launch, "/infer", {"rows": [[ONE, OTHER]]}
)
