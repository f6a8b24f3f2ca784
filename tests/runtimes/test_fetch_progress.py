"""How long a download may take, on a clock of the test."""

import subprocess
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runtimes.wheels import FetchProgress

pytestmark = pytest.mark.plain

HOUR = 3600.0


class Download:
    """A process that adds a byte to its file at each look, `grows` times, and ends at look `ends`."""

    def __init__(self, path: Path, grows: int, ends: int) -> None:
        self.path, self.grows, self.ends, self.looks = path, grows, ends, 0

    def communicate(self, timeout: float) -> tuple[str, str]:
        self.looks += 1
        if self.looks == self.ends:
            return "", "what pip says"
        if self.looks <= self.grows:
            self.path.write_bytes(bytes(self.looks))
        raise subprocess.TimeoutExpired("pip", timeout)


@pytest.fixture
def progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FetchProgress:
    """An hour passes at each look at the time."""
    clock = count(step=HOUR)
    monkeypatch.setattr("runtimes.wheels.time", SimpleNamespace(monotonic=lambda: next(clock)))
    return FetchProgress("model", 1000, tmp_path, shown=False)


def test_a_slow_download_only_takes_longer(progress: FetchProgress, tmp_path: Path) -> None:
    download: Any = Download(tmp_path / "model", grows=99, ends=100)
    assert progress.wait(download, 1.5 * HOUR) == "what pip says"


def test_a_download_that_stands_still_is_given_up(progress: FetchProgress, tmp_path: Path) -> None:
    download: Any = Download(tmp_path / "model", grows=5, ends=100)
    with pytest.raises(subprocess.TimeoutExpired):
        progress.wait(download, 1.5 * HOUR)
    assert download.looks == 7


def test_without_a_terminal_the_progress_is_a_line_from_time_to_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr("runtimes.wheels.time", SimpleNamespace(monotonic=lambda: now[0]))
    progress = FetchProgress("fetching a", 98_000_000, tmp_path, shown=True)
    for second in range(12):
        now[0] = float(second)
        progress.show(second * 8_000_000)
    assert capsys.readouterr().err.splitlines() == [
        "fetching a (98 MB)",
        "fetching a: 40 of 98 MB",
        "fetching a: 80 of 98 MB",
    ]
