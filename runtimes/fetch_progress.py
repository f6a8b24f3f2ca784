"""Reports the progress of a download on stderr: a bar on a terminal, plain lines elsewhere."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

_POLL = 0.2


class FetchProgress:
    """Watches files grow in `folder` towards `total` bytes while a process writes them.

    Prints nothing unless `shown`.
    """

    def __init__(self, label: str, total: int, folder: Path, *, shown: bool) -> None:
        console = Console(stderr=True)
        self._folder = folder
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn(),
            console=console, transient=True, disable=not (shown and console.is_terminal),
        )  # fmt: skip
        self._task = self._bar.add_task(label, total=total)
        if shown and not console.is_terminal:
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
                self._bar.update(self._task, completed=received)


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
