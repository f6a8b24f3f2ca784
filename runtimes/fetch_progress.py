"""How far a download is, on stderr: a bar on a terminal, plain lines elsewhere."""

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

    Says nothing at all unless `shown`.
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

    def wait(self, process: "subprocess.Popen[str]", timeout: float) -> str:
        """Until `process` ends; what it wrote to stderr. Raises subprocess.TimeoutExpired after `timeout` seconds."""
        end = time.monotonic() + timeout
        while True:
            try:
                return process.communicate(timeout=_POLL)[1]
            except subprocess.TimeoutExpired:
                if time.monotonic() > end:
                    raise
                self._bar.update(self._task, completed=self._received())

    def _received(self) -> int:
        received = 0
        for file in self._folder.rglob("*"):
            try:
                received = max(received, file.stat().st_size)
            except FileNotFoundError:  # it was renamed while we looked
                continue
        return received
