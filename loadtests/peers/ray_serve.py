"""Ray Serve: one replica with batching, and its own proxy before it."""

import functools
import shutil
from pathlib import Path

from loadtests.servers import Launch
from loadtests.tensors.peer import MODELS, ROWS, SINGLE_THREAD, Peer
from loadtests.venvs import ensure

REQUIREMENTS = ("ray[serve]==2.60.0", "numpy==2.4.6")


def launch(folder: Path, port: int, venv: Path) -> Launch:
    """The deployment is a program that starts a cluster of its own."""
    model = shutil.copy(MODELS / "ray_serve.py", folder / "model.py")
    env = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": str(folder), "RAY_DEDUP_LOGS": "0", **SINGLE_THREAD}
    return Launch([str(venv / "bin/python"), str(model), str(port)], env=env)


RAY_SERVE = Peer("ray-serve", functools.partial(ensure, "ray-serve", REQUIREMENTS), launch, "/", ROWS, apart=True)
