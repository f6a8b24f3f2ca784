"""Servers that tests need and Debian packages: found, or installed where we may."""

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
    if (found := _find(name, folders)) is not None:
        return found
    with (Path(tempfile.gettempdir()) / "headrace-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two tests at once would meet apt's own lock, and fail
        if _find(name, folders) is None and os.geteuid() == 0 and shutil.which("apt-get"):
            _run("apt-get", "update", "-q")
            _run("apt-get", "install", "-y", "--no-install-recommends", package)
    found = _find(name, folders)
    assert found is not None, f"this test runs a real {name}: sudo apt-get install {package}"
    return found


def _run(*command: str) -> None:
    # Installed and not started, which RUNLEVEL asks for: each test runs its own server, on a free port.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    subprocess.run(command, env=environment, check=False, capture_output=True, timeout=300)


def _find(name: str, folders: tuple[str, ...]) -> str | None:
    if found := shutil.which(name):
        return found
    hits = sorted(path for pattern in folders for path in Path("/").glob(f"{pattern.lstrip('/')}/{name}"))
    return str(hits[-1]) if hits else None
