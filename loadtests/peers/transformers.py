"""transformers: its own server, which generates one answer at a time, and the static batches that programs make."""

from pathlib import Path

from loadtests.servers import REPOSITORY, Launch

_ENV = {"OMP_NUM_THREADS": "2", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}


def launch(venv: Path, folder: Path, port: int) -> Launch:
    """`transformers serve` on a folder of safetensors."""
    command = [str(venv / "bin/python"), str(venv / "bin/transformers"), "serve", str(folder)]
    doors = ["--host", "127.0.0.1", "--port", str(port), "--dtype", "bfloat16", "--device", "cpu"]
    return Launch([*command, *doors], env=_ENV)


def launch_batches(venv: Path, folder: Path, port: int) -> Launch:
    """`generate` on as many as wait, 32 at most: its own server has nothing of the kind for plain batches."""
    program = REPOSITORY / "loadtests/peers/transformers_batches.py"
    # -P: or it would find the file beside it that is called transformers.
    return Launch([str(venv / "bin/python"), "-P", str(program), str(folder), str(port)], env=_ENV)
