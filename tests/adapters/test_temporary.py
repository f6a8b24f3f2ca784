import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.process import TemporaryFolder, sweep

HOLD = """
import sys
from adapters.process import TemporaryFolder
folder = TemporaryFolder()
print(folder.name, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield tmp_path
    tempfile.tempdir = None


def holder() -> "tuple[subprocess.Popen[str], Path]":
    """A process with a folder of its own."""
    process = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def end(process: "subprocess.Popen[str]", number: int | None = None) -> None:
    if number is not None:
        process.send_signal(number)
    process.communicate(timeout=300)


@pytest.mark.processes
def test_folders_of_a_killed_process_are_removed_and_those_in_use_stay(temporary: Path) -> None:
    killed, left = holder()
    (left / "model").mkdir()
    (left / "model/weights").write_bytes(b"x")
    alive, in_use = holder()
    end(killed, signal.SIGKILL)
    assert left.exists()
    assert sweep() == 1
    assert set(temporary.iterdir()) == {in_use}
    end(alive)
    assert list(temporary.iterdir()) == []


def test_a_folder_in_use_by_this_process_stays() -> None:
    folder = TemporaryFolder()
    assert sweep() == 0
    folder.cleanup()
    assert not Path(folder.name).exists()


def test_other_folders_stay(temporary: Path) -> None:
    target = temporary / "precious"
    target.mkdir()
    (target / ".owner").touch()
    (temporary / "headrace-link").symlink_to(target)
    (temporary / "headrace-file").touch()
    (temporary / "headrace-made-by-hand").mkdir()
    before = set(temporary.iterdir())
    assert sweep() == 0
    assert set(temporary.iterdir()) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's folder")
def test_another_users_folder_stays(temporary: Path) -> None:
    other = temporary / "headrace-theirs"
    other.mkdir()
    (other / ".owner").touch()
    os.chown(other, 12345, 12345)
    assert sweep() == 0
    assert other.exists()
