"""Our server of names and places with the real Presidio, and a pipeline of spaCy that finds a few names by rules."""

import contextlib
import subprocess
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from loadtests.servers import Launch
from loadtests.venvs import ensure
from tests.servers.programs import __path__ as programs
from tests.servers.started import Started, started

ROOT = Path(__file__).parents[2]
OWN = ("httptools", "msgspec", "pydantic", "uvloop")
"""What the server itself imports."""
REQUIREMENTS = ("presidio-analyzer==2.2.366", "spacy==3.8.18", *(f"{name}=={version(name)}" for name in OWN))


def install() -> Path:
    """Install Presidio with spaCy, in an environment of its own."""
    return ensure("presidio", REQUIREMENTS)


def launch(folder: Path, ports: tuple[int, ...], venv: Path) -> Launch:
    """`python -m runtimes.recogniser` with a pipeline that is written first."""
    python, pipeline = str(venv / "bin/python"), folder / "pipeline"
    subprocess.run([python, str(Path(programs[0]) / "presidio_pipeline.py"), str(pipeline)], check=True, timeout=300)
    arguments = ["--pipeline", f"en={pipeline}", "--port", str(ports[0])]
    return Launch([python, "-m", "runtimes.recogniser", *arguments], env={"PYTHONPATH": str(ROOT)})


@contextlib.contextmanager
def presidio() -> Iterator[Started]:
    """Ready when its pipeline is loaded."""
    with started("presidio", install, launch, ready="/health") as server:
        yield server
