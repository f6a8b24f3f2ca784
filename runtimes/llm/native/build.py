"""Compiles the step, once for each state of its sources and kind of processor.

The library is plain C to its caller, so it needs a C++ compiler and nothing else: no headers of Python or torch.
"""

import ctypes
import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from platformdirs import user_cache_path

HERE = Path(__file__).parent
COMPILERS = ("c++", "g++", "clang++")
FLAGS = (
    "-O3", "-std=c++20", "-fPIC", "-shared", "-pthread",
    "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast",
)  # fmt: skip
BUILD_SECONDS = 600
RETRY_SECONDS = 86_400
"""A compiler that failed is not started again for the same sources before this time."""

_OF_THE_MACHINE = ("Killed signal", "No space left on device", "out of memory", "unable to execute command: Killed")
"""Failures that the next compilation may not have: they are not recorded."""


class NativeUnavailable(Exception):
    """The step cannot be compiled here, or cannot run this model; the message is the reason."""


class CompilerFailed(NativeUnavailable):
    """The compiler cannot compile the step for a target."""


class BuildTarget(NamedTuple):
    """A kind of processor: torch's names of its features, and the compiler's flags for them."""

    needs: frozenset[str]
    flags: tuple[str, ...]


_AVX2 = ("-mavx2", "-mfma", "-mf16c")
_AVX512 = ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512bf16", *_AVX2)
_AVX512_ABILITIES = frozenset({"avx512_f", "avx512_bw", "avx512_vl", "avx512_dq", "avx512_bf16"})

TARGETS = {
    "amx": BuildTarget(_AVX512_ABILITIES | {"amx_tile", "amx_bf16"}, ("-mamx-tile", "-mamx-bf16", *_AVX512)),
    "avx512": BuildTarget(_AVX512_ABILITIES, _AVX512),
    "avx2": BuildTarget(frozenset({"avx2", "fma3"}), _AVX2),
    "arm64": BuildTarget(frozenset({"neon"}), ()),
    # The tiles of AMX in plain C++: its path, tested where there are none.
    "emulated-amx": BuildTarget(_AVX512_ABILITIES, ("-DHEADRACE_EMULATED_TILES", *_AVX512)),
}  # fastest first
EMULATED = frozenset({"emulated-amx"})
"""Targets for tests, which are slower than others of the same processor."""


def targets() -> list[str]:
    """The targets that this machine runs, fastest first."""
    abilities = torch.cpu.get_capabilities()
    return [name for name, target in TARGETS.items() if all(abilities.get(need) for need in target.needs)]


@cache
def library(target: str, folder: Path | None = None) -> ctypes.CDLL:
    """The step for `target`, compiled if it is not in `folder` yet; the compilation lasts ten to thirty seconds.

    The environment's CXXFLAGS come after our own flags. A failure of the compiler is recorded in `folder`, and raised
    again at the next starts without a compilation.

    Raises NativeUnavailable; CompilerFailed if another target may succeed.
    """
    folder = folder or user_cache_path("headrace") / "native"
    compiler = next((path for name in _compilers() if (path := shutil.which(name))), None)
    sources = sorted([*HERE.glob("*.h"), *HERE.glob("*.cpp")])
    flags = [*FLAGS, *TARGETS[target].flags, *shlex.split(os.environ.get("CXXFLAGS", ""))]
    key = hashlib.sha256(b"\0".join([source.read_bytes() for source in sources] + [" ".join(flags).encode()]))
    built = folder / f"step-{target}-{key.hexdigest()[:16]}.so"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # One process compiles; others that need the same library wait for it.
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not built.exists():
                if compiler is None:
                    raise NativeUnavailable(f"there is no C++ compiler: none of {', '.join(_compilers())} is on PATH")
                _compile_once(compiler, flags, built)
        return ctypes.CDLL(str(built))
    except OSError as error:
        raise NativeUnavailable(f"the compiled step cannot be stored or loaded: {error}") from None


def _compilers() -> tuple[str, ...]:
    return (os.environ["CXX"],) if os.environ.get("CXX") else COMPILERS


def _compile_once(compiler: str, flags: list[str], built: Path) -> None:
    """Compile, unless this compiler failed to within the last RETRY_SECONDS."""
    status = Path(compiler).stat()
    version = f"{Path(compiler).resolve()} {status.st_size} {status.st_mtime_ns}"
    failure = built.with_suffix(".failed")
    if failure.exists() and 0 <= time.time() - failure.stat().st_mtime < RETRY_SECONDS:
        recorded, _, reason = failure.read_text().partition("\n")
        if recorded == version:
            raise CompilerFailed(f"{reason} (recorded in {failure}: remove the file to compile again)")
    try:
        _compile(compiler, flags, built)
    except CompilerFailed as error:
        failure.write_text(f"{version}\n{error}")
        raise
    failure.unlink(missing_ok=True)


def _compile(compiler: str, flags: list[str], built: Path) -> None:
    fresh = built.with_suffix(".new")
    command = [compiler, *flags, str(HERE / "step.cpp"), "-o", str(fresh)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS)  # noqa: S603 - our own sources
    except subprocess.TimeoutExpired:
        raise CompilerFailed(f"{compiler} took more than {BUILD_SECONDS} s") from None
    if done.returncode < 0 or any(word in done.stderr for word in _OF_THE_MACHINE):
        raise NativeUnavailable(f"{compiler} was interrupted: {done.stderr[-200:].strip() or done.returncode}")
    if done.returncode:
        wrong = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()[-1:]
        raise CompilerFailed(f"{compiler} cannot compile the step: {'; '.join(wrong[:3])}")
    fresh.replace(built)
