"""Builds of the native core."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

SOURCES = Path(__file__).parents[3] / "adapters" / "native"
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g", "-O1")


def sanitized(folder: Path) -> Path:
    """Compile the core with AddressSanitizer and UndefinedBehaviorSanitizer into a folder."""
    core = folder / "_core.so"
    command = ["gcc", *SANITIZERS, "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-fPIC", "-shared"]
    sources = sorted(SOURCES.glob("*.c"))
    subprocess.run([*command, f"-I{sysconfig.get_paths()['include']}", *sources, "-o", core], check=True)
    return core


def environment() -> dict[str, str]:
    """The environment of a process that loads a sanitized core.

    Python allocates from the system, so that each object has its red zones; what Python never frees is no leak.
    """
    library = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    options = {"LD_PRELOAD": library.stdout.strip(), "ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc"}
    return os.environ | options


def fuzz(core: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the fuzzer in another process with a sanitized core."""
    command = [sys.executable, "-m", "tests.adapters.native.fuzz", "--core", str(core), *arguments]
    return subprocess.run(
        command, env=environment(), capture_output=True, text=True, cwd=SOURCES.parents[1], check=False
    )
