"""MLServer: adaptive batching in its own process, batches of eight that wait a millisecond at the most."""

import functools
import json
import shutil
from pathlib import Path

from loadtests.servers import Launch, free_ports
from loadtests.tensors.peer import MODELS, OIP, OIP_PATH, SINGLE_THREAD, Peer
from loadtests.venvs import ensure

REQUIREMENTS = ("mlserver==1.7.1",)


def launch(folder: Path, port: int, venv: Path) -> Launch:
    """`mlserver start` on a folder with its two settings files and the model."""
    grpc, metrics = free_ports(2)
    ports = {"http_port": port, "grpc_port": grpc, "metrics_port": metrics}
    settings = {"host": "127.0.0.1", **ports, "parallel_workers": 0, "debug": False}
    model = {"name": "add_sub", "implementation": "add_sub.AddSub", "max_batch_size": 8, "max_batch_time": 0.001}
    shutil.copy(MODELS / "mlserver.py", folder / "add_sub.py")
    (folder / "settings.json").write_text(json.dumps(settings))
    (folder / "model-settings.json").write_text(json.dumps(model))
    return Launch([str(venv / "bin/mlserver"), "start", str(folder)], env=SINGLE_THREAD)


MLSERVER = Peer("mlserver", functools.partial(ensure, "mlserver", REQUIREMENTS), launch, OIP_PATH, OIP)
