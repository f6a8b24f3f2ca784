"""Compiles this folder's C programs, once for each state of their sources."""

import hashlib
import shutil
import subprocess
from pathlib import Path

from platformdirs import user_cache_path

HERE = Path(__file__).parent
CACHE = user_cache_path("headrace") / "loadtests"
FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Wshadow", "-Werror")


class BuildError(Exception):
    """A program could not be compiled; the message holds the compiler's own."""


def build(name: str, cache: Path = CACHE) -> Path:
    """The compiled ``NAME.c``. Keyed by a hash of it, the shared header and the flags.

    Raises:
        BuildError: no gcc on PATH, or it refused the source.
    """
    source, header = HERE / f"{name}.c", HERE / "http1.h"
    key = hashlib.sha256(source.read_bytes() + header.read_bytes() + " ".join(FLAGS).encode())
    program = cache / "bin" / f"{name}-{key.hexdigest()[:16]}"
    if program.exists():
        return program
    gcc = shutil.which("gcc")
    if gcc is None:
        raise BuildError("gcc is not on PATH: apt-get install gcc libc6-dev")
    program.parent.mkdir(parents=True, exist_ok=True)
    # Compiled beside and renamed: a second run at the same moment never sees half a program.
    fresh = program.with_suffix(".new")
    done = subprocess.run(
        [gcc, *FLAGS, "-o", str(fresh), str(source), "-lm"], capture_output=True, text=True, timeout=120
    )
    if done.returncode:
        raise BuildError(f"{source.name} does not compile:\n{done.stderr.strip()}")
    fresh.replace(program)
    return program
