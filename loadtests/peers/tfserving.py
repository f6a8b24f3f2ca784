"""TensorFlow Serving's stand-in: its own services over a real SavedModel, since PyPI has no binary of it."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from loadtests.fleet.work import SCALE
from loadtests.servers import REPOSITORY, Launch, StartError
from loadtests.venvs import add, ensure

TENSORFLOW = ("tensorflow-cpu==2.21.0", "msgspec==0.22.0")
SERVING = ("tensorflow-serving-api==2.21.0",)
STAND_IN = "tests.servers.stand_ins.tfserving"
ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0", "PYTHONPATH": str(REPOSITORY)}


def install() -> Path:
    """TensorFlow, and the serving API without what it would pull in."""
    return add(ensure("tensorflow", TENSORFLOW), SERVING)


def launch(folder: Path, ports: Sequence[int], venv: Path) -> Launch:
    """With one small model, at a port for HTTP and one for gRPC."""
    python, config = str(venv / "bin/python"), folder / "models.config"
    command = [python, "-m", f"{STAND_IN}.saved", str(folder / "scale"), str(SCALE)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise StartError(f"tfserving: {done.stderr.strip()}")
    model = f'name: "scale" base_path: "{folder / "scale"}" model_platform: "tensorflow"'
    config.write_text(f"model_config_list {{ config {{ {model} }} }}")
    return Launch([python, "-m", STAND_IN, str(config), *map(str, ports)], env=ENVIRONMENT)
