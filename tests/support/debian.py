"""Servers from Debian packages that tests need: the installed program, or an installation of it."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path


def binary(name: str, package: str, *folders: str) -> str:
    """The path of a program, looked for on PATH and in `folders` (globs from /).

    Installs the Debian package as root, so that a bare machine runs every test. AssertionError with the command
    to type where it cannot.
    """
    if (path := _installed_path(name, folders)) is not None:
        return path
    with (Path(tempfile.gettempdir()) / "headrace-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two tests at once would meet apt's own lock, and fail
        if _installed_path(name, folders) is None and os.geteuid() == 0 and shutil.which("apt-get"):
            _run("apt-get", "update", "-q")
            _run("apt-get", "install", "-y", "--no-install-recommends", package)
    path = _installed_path(name, folders)
    assert path is not None, f"this test runs a real {name}: sudo apt-get install {package}"
    return path


def _run(*command: str) -> None:
    # RUNLEVEL prevents the start after the installation: each test runs its own server, on a free port.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    subprocess.run(command, env=environment, check=False, capture_output=True, timeout=300)


def _installed_path(name: str, folders: tuple[str, ...]) -> str | None:
    if program := shutil.which(name):
        return program
    hits = sorted(path for pattern in folders for path in Path("/").glob(f"{pattern.lstrip('/')}/{name}"))
    return str(hits[-1]) if hits else None
