"""NVIDIA Triton on the CPU: its server out of pytriton's wheel, with the python backend.

The wheel carries Triton 2.51.0 (24.10): schedulers, HTTP and gRPC doors, cache and statistics are the product's
own. The ONNX and PyTorch backends are not in it; a model that needs them uses them from Python.
"""

import contextlib
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from loadtests.servers import Launch
from loadtests.venvs import InstallError, ensure

# With numpy 2 this release's python backend answers 200 and empty tensors.
TRITON = ("nvidia-pytriton==0.7.0", "numpy==1.26.4", "onnxruntime==1.31.1")


class Ports(NamedTuple):
    """Where it listens, on loopback."""

    http: int
    grpc: int
    metrics: int


def install() -> Path:
    """The environment, with a folder `backends` in the layout that the server requires.

    Raises:
        InstallError: the wheel could not be installed, or does not support this Python.
    """
    venv = ensure("triton", TRITON)
    home, version = _site_packages(venv) / "pytriton/tritonserver", f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = home / "python_backend_stubs" / version / "triton_python_backend_stub"
    if not stub.exists():
        raise InstallError(f"triton: no python backend for Python {version}")
    if not (venv / "backends").exists():
        _lay_out(home / "backends/python", stub, venv / "backends")
    return venv


def _lay_out(backend: Path, stub: Path, to: Path) -> None:
    """The stub beside its backend. Made apart and renamed: another run sees all of it or nothing."""
    with tempfile.TemporaryDirectory(dir=to.parent) as apart:
        shutil.copytree(backend, Path(apart) / "all/python")
        (Path(apart) / "all/python" / stub.name).write_bytes(stub.read_bytes())
        (Path(apart) / "all/python" / stub.name).chmod(0o755)
        with contextlib.suppress(OSError):  # another run was first
            (Path(apart) / "all").rename(to)


def _site_packages(venv: Path) -> Path:
    return next(venv.glob("lib/python3*/site-packages"))


def libraries(venv: Path) -> Path:
    """The shared libraries that the wheel brings along."""
    return _site_packages(venv) / "nvidia_pytriton.libs"


def launch(venv: Path, repository: Path, ports: Ports, options: Sequence[str] = ()) -> Launch:
    """The command that serves a repository; `options` select models and enable features."""
    home = _site_packages(venv) / "pytriton/tritonserver"
    doors = [
        f"--{door}-{option}={value}"
        for door, port in ports._asdict().items()
        for option, value in (("address", "127.0.0.1"), ("port", port))
    ]
    # Its shared memory is named, so that what a killed server leaves behind can be found again.
    shared = f"--backend-config=python,shm-region-prefix-name=headrace_{ports.http}_"
    folders = [f"--model-repository={repository}", f"--backend-directory={venv}/backends"]
    caches = [f"--cache-directory={home}/caches", "--allow-gpu-metrics=false", shared]
    path = f"{libraries(venv)}:{sysconfig.get_config_var('LIBDIR')}"
    # The python backend finds its packages through the first python3 on PATH.
    env = {"LD_LIBRARY_PATH": path, "PATH": f"{venv / 'bin'}:/usr/bin:/bin"}
    return Launch([str(home / "bin/tritonserver"), *folders, *caches, *doors, *options], env=env)


def sweep(ports: Ports) -> None:
    """Removes the shared memory of a server that ended without doing so itself."""
    for region in Path("/dev/shm").glob(f"headrace_{ports.http}_*"):
        region.unlink(missing_ok=True)
