"""One cached virtual environment a peer, made on first use."""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from loadtests.native import CACHE

INSTALL_TIMEOUT_S = 1200


class InstallError(Exception):
    """A peer's packages could not be installed; the message holds pip's last line."""


def ensure(
    name: str,
    requirements: Sequence[str],
    cache: Path = CACHE,
    *,
    seconds: float = INSTALL_TIMEOUT_S,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Path:
    """The folder of an environment with exactly these pinned requirements and their dependencies.

    ``variables`` are further environment variables of pip, for packages that it compiles.

    Raises:
        InstallError: pip failed or took longer than ``seconds``.
    """
    folder = cache / "peers" / name
    marker, required = folder / "installed.txt", "\n".join(requirements)
    with exclusive(folder):
        if marker.exists() and marker.read_text() == required:
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        _run(name, [sys.executable, "-m", "venv", str(folder)], seconds)
        if requirements:
            pip = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet", *requirements]
            _run(name, pip, seconds, variables)
        marker.write_text(required)
    return folder


def add(folder: Path, requirements: Sequence[str]) -> Path:
    """The same environment with these as well, without anything that they would pull in.

    Raises:
        InstallError: as `ensure` does.
    """
    marker, required = folder / "added.txt", "\n".join(requirements)
    with exclusive(folder):
        if not marker.exists() or marker.read_text() != required:
            pip = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet", "--no-deps"]
            _run(folder.name, [*pip, *requirements])
            marker.write_text(required)
    return folder


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Two runs at once do not install into each other."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(
    name: str,
    command: Sequence[str],
    seconds: float = INSTALL_TIMEOUT_S,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> None:
    # Some packages compile with "make -j", a hundred compilers at once, which takes all of the memory. Make starts no
    # further compiler while the load is above the number of cores.
    environment = {**os.environ, "MAKEFLAGS": f"-l {os.cpu_count() or 1}", **variables}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=environment)
    except subprocess.TimeoutExpired:
        raise InstallError(f"{name}: installing took longer than {seconds:.0f} s") from None
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise InstallError(f"{name}: {reason}")
