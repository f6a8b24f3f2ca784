"""KServe's Python SDK, which has no batching of its own."""

import functools
import shutil
from pathlib import Path

from loadtests.servers import Launch
from loadtests.tensors.peer import MODELS, OIP, OIP_PATH, SINGLE_THREAD, Peer
from loadtests.venvs import ensure

REQUIREMENTS = ("kserve==0.21.0",)


def launch(folder: Path, port: int, venv: Path) -> Launch:
    """The model is a program; copied, since in its own folder it would hide the packages that it imports."""
    model = shutil.copy(MODELS / "kserve.py", folder / "model.py")
    return Launch([str(venv / "bin/python"), str(model), str(port)], env=SINGLE_THREAD)


# KServe requires an id in every request.
KSERVE = Peer("kserve", functools.partial(ensure, "kserve", REQUIREMENTS), launch, OIP_PATH, {"id": "1", **OIP})
