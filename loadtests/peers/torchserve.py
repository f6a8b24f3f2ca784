"""TorchServe: one worker, batches of eight that wait a millisecond at the most, which is its shortest."""

import json
import shutil
import subprocess
from pathlib import Path

from loadtests.servers import Launch, StartError, free_ports
from loadtests.tensors.peer import MODELS, ROWS, SINGLE_THREAD, Peer
from loadtests.venvs import InstallError, ensure

REQUIREMENTS = (
    "torch==2.13.0", "torchserve==0.12.0", "torch-model-archiver==0.12.0", "pyyaml==6.0.3", "requests==2.32.5",
    "packaging==26.3", "pillow==12.0.0", "psutil==7.1.3", "numpy==2.4.6", "setuptools<81",
)  # fmt: skip
MODEL = {
    "defaultVersion": True,
    "marName": "add_sub.mar",
    "minWorkers": 1,
    "maxWorkers": 1,
    "batchSize": 8,
    "maxBatchDelay": 1,
    "responseTimeout": 60,
}


def install() -> Path:
    """Its packages; Java must be there."""
    if shutil.which("java") is None:
        raise InstallError("torchserve: no java on PATH; apt-get install openjdk-17-jre-headless")
    return ensure("torchserve", REQUIREMENTS)


def properties(folder: Path, port: int) -> str:
    """Its configuration: every door on loopback, no token."""
    management, metrics, grpc, grpc_management = free_ports(4)
    lines = [
        f"inference_address=http://127.0.0.1:{port}",
        f"management_address=http://127.0.0.1:{management}",
        f"metrics_address=http://127.0.0.1:{metrics}",
        f"grpc_inference_address=127.0.0.1\ngrpc_inference_port={grpc}",
        f"grpc_management_address=127.0.0.1\ngrpc_management_port={grpc_management}",
        f"model_store={folder}\nload_models=add_sub.mar",
        f"models={json.dumps({'add_sub': {'1.0': MODEL}})}",
        "disable_token_authorization=true\ninstall_py_dep_per_model=false\ndefault_workers_per_model=1",
    ]
    return "\n".join(lines) + "\n"


def java(folder: Path, venv: Path) -> Launch:
    """The server, with the folder's `config.properties`, from within the folder, where it writes its tokens.

    Java itself: the wrapper does not pass a signal on.
    """
    packages = next(venv.glob("lib/python3*/site-packages"))
    command = ["env", "--chdir", str(folder), "java", f"-Dmodel_server_home={packages}", "-Xmx512m"]
    command += ["-cp", f".:{packages}/ts/frontend/*", "org.pytorch.serve.ModelServer"]
    options = ["--python", str(venv / "bin/python3"), "-f", str(folder / "config.properties"), "-ncs"]
    env = {"LOG_LOCATION": str(folder), "METRICS_LOCATION": str(folder), "TEMP": str(folder), **SINGLE_THREAD}
    return Launch([*command, *options], env=env)


def launch(folder: Path, port: int, venv: Path) -> Launch:
    """With the one model."""
    (folder / "config.properties").write_text(properties(folder, port))
    handler = shutil.copy(MODELS / "torchserve.py", folder / "handler.py")
    archive = [str(venv / "bin/torch-model-archiver"), "--model-name", "add_sub", "--version", "1.0"]
    archive += ["--handler", str(handler), "--export-path", str(folder), "--force"]
    done = subprocess.run(archive, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise StartError(f"torch-model-archiver: {done.stderr.strip()}")
    return java(folder, venv)


TORCHSERVE = Peer("torchserve", install, launch, "/predictions/add_sub", ROWS)
