"""A real MLServer with `programs/mlserver_models.py` and a scikit-learn model."""

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loadtests.peers.mlserver import REQUIREMENTS
from loadtests.servers import Launch, environment
from loadtests.tensors.peer import SINGLE_THREAD
from loadtests.venvs import ensure
from tests.servers.programs import __path__ as programs
from tests.servers.started import Started, started

VERSION = "1.7.1"
TEXT = {"name": "text", "datatype": "BYTES", "shape": [1], "parameters": {"content_type": "str"}}
ROWS = [{"name": f"{kind}PUT{i}", "datatype": "INT32", "shape": [-1, 16]} for kind in ("IN", "OUT") for i in (0, 1)]
MODELS: dict[str, dict[str, Any]] = {
    "add_sub": {"implementation": "models.AddSub", "inputs": ROWS[:2], "outputs": ROWS[2:]},
    "words": {"implementation": "models.Words", "inputs": [TEXT], "outputs": [TEXT]},
    "frame": {"implementation": "models.Frame"},
    "fails": {"implementation": "models.Fails"},
    "iris": {
        "implementation": "mlserver_sklearn.SKLearnModel",
        "parameters": {"uri": "./iris.joblib", "version": "v1"},
    },
}


def install() -> Path:
    """MLServer with its scikit-learn runtime."""
    return ensure("mlserver-sklearn", (*REQUIREMENTS, "mlserver-sklearn==1.7.1"))


def launch(folder: Path, ports: tuple[int, ...], venv: Path) -> Launch:
    """`mlserver start` on a repository, in one process."""
    http, grpc, metrics = ports
    settings = {"host": "127.0.0.1", "http_port": http, "grpc_port": grpc, "metrics_port": metrics}
    (folder / "settings.json").write_text(json.dumps({**settings, "parallel_workers": 0, "debug": False}))
    shutil.copy(Path(programs[0]) / "mlserver_models.py", folder / "models.py")
    for name, model in MODELS.items():
        (folder / name).mkdir()
        (folder / name / "model-settings.json").write_text(json.dumps({"name": name, **model}))
    iris = [str(venv / "bin/python"), str(Path(programs[0]) / "mlserver_iris.py"), str(folder / "iris/iris.joblib")]
    subprocess.run(iris, check=True, capture_output=True, timeout=300, cwd=folder, env=environment())
    env = {**SINGLE_THREAD, "PYTHONPATH": str(folder)}
    return Launch([str(venv / "bin/mlserver"), "start", str(folder)], env=env)


@contextlib.contextmanager
def mlserver() -> Iterator[Started]:
    """Its ports are HTTP's, gRPC's and its metrics'."""
    with started("mlserver", install, launch, ports=3, ready="/v2/health/ready") as server:
        yield server
