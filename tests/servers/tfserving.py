"""TensorFlow Serving's stand-in as a test has it: `with tfserving(config) as server`, and models for it."""

import atexit
import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from loadtests.peers.tfserving import ENVIRONMENT, STAND_IN, install
from loadtests.servers import Launch, log_tail
from loadtests.venvs import InstallError
from tests.servers.started import watched
from tests.support.absent import absent


@dataclass(frozen=True, slots=True)
class TfServing:
    """A running one."""

    http: str
    """`HOST:PORT`."""
    grpc: str
    config: Path


@cache
def python() -> str:
    """The interpreter of an environment that has TensorFlow and its serving API."""
    try:
        return str(install() / "bin/python")
    except InstallError as error:
        absent(f"a real TensorFlow: {error}")


def small(folder: Path) -> Path:
    """A small model: version 1 has 3 for its scale, version 2 has 5."""
    shutil.copytree(_made(), folder)
    return folder


@cache
def _made() -> Path:
    """Made once for all tests."""
    folder = tempfile.mkdtemp(prefix="headrace-saved-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    run(f"{STAND_IN}.saved", folder, "3", "5")
    return Path(folder)


def run(module: str, *arguments: str) -> str:
    """The output of a program of that environment."""
    command = [python(), "-m", module, *arguments]
    done = subprocess.run(command, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def config_of(name: str, base: Path, **labels: int) -> str:
    """A model with all versions served, in a ModelServerConfig's text form."""
    version_labels = " ".join(
        f'version_labels {{ key: "{label}" value: {number} }}' for label, number in labels.items()
    )
    policy = "model_version_policy { all {} }"
    return f'config {{ name: "{name}" base_path: "{base}" model_platform: "tensorflow" {policy} {version_labels} }}'


@contextlib.contextmanager
def tfserving(*models: str) -> Iterator[TfServing]:
    """Started with these models, and ready. Its log is shown when the block fails."""
    with tempfile.TemporaryDirectory(prefix="headrace-tfserving-") as name:
        folder = Path(name)
        config = folder / "models.config"
        config.write_text(f"model_config_list {{ {' '.join(models)} }}")
        launch = Launch([python(), "-m", STAND_IN, str(config)], env=ENVIRONMENT)

        def listening() -> re.Match[str] | None:
            return re.search(r"REST on (\S+), gRPC on (\S+)", log_tail("tfserving", folder, 1000))

        with watched("tfserving", launch, folder, listening) as (_, match):
            assert match is not None
            yield TfServing(match[1], match[2], config)
