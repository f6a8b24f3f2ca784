"""Packages of npm in folders of the cache."""

import contextlib
import fcntl
import subprocess
from collections.abc import Iterator
from pathlib import Path

from loadtests.native import CACHE
from tests.support.absent import absent

SECONDS = 600.0


@contextlib.contextmanager
def folder_of(name: str) -> Iterator[Path]:
    """A folder of the cache, for this process alone."""
    folder = CACHE / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def npm(folder: Path, *arguments: str) -> str:
    """The output of npm in a folder. Skips the test on a machine without npm and its registry."""
    try:
        done = subprocess.run(["npm", *arguments], cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    except FileNotFoundError:
        absent("npm")
    if done.returncode:
        absent(f"npm {' '.join(arguments)}: {done.stderr.strip()[-400:]}")
    return done.stdout


def install(folder: Path, *packages: str) -> None:
    """Install exactly these packages, with their dependencies, unless the folder has them."""
    marker = folder / "installed.txt"
    if not marker.exists() or marker.read_text() != "\n".join(packages):
        npm(folder, "install", "--silent", "--no-audit", "--no-fund", *packages)
        marker.write_text("\n".join(packages))
