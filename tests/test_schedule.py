"""The distribution of test files over processes, seen from small suites that run under it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.schedule import ALONE, SHARED

ROOT = Path(__file__).parents[1]
CONFTEST = """
import pytest
from tests.support import schedule

schedule.ALONE = frozenset({"test_b_measures.py"})
schedule._UNITS = {"test_c.py": "server", "test_e.py": "server"}

@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    schedule.sort(items)

def pytest_xdist_make_scheduler(config, log):
    return schedule.Schedule(config, log)
"""
TEST = """
import os, pathlib, time, pytest

@pytest.mark.parametrize("number", range(3))
def test_it(number):
    log = pathlib.Path(__file__).with_name("log")
    with log.open("a") as file:
        file.write(f"{pathlib.Path(__file__).stem} {os.getpid()} begins\\n")
    time.sleep(0.02)
    with log.open("a") as file:
        file.write(f"{pathlib.Path(__file__).stem} {os.getpid()} ends\\n")
"""


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    env["PYTHONPATH"] = str(ROOT)
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300)


def suite(folder: Path, *names: str) -> None:
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "conftest.py").write_text(CONFTEST)
    for name in names:
        (folder / f"test_{name}.py").write_text(TEST)


def test_each_named_file_exists() -> None:
    named = ALONE.union(*SHARED.values())
    assert [path for path in sorted(named) if not (ROOT / path).is_file()] == []


@pytest.mark.processes
@pytest.mark.parametrize("processes", [1, 3])
def test_units_stay_in_one_process_and_measuring_files_run_alone(tmp_path: Path, processes: int) -> None:
    suite(tmp_path, "a", "b_measures", "c", "d", "e", "f")
    result = run(tmp_path, f"-n{processes}")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "18 passed" in result.stdout
    lines = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    processes_of: dict[str, set[str]] = {}
    for name, process, _ in lines:
        processes_of.setdefault("server" if name in ("test_c", "test_e") else name, set()).add(process)
    assert all(len(used) == 1 for used in processes_of.values()), processes_of
    assert {name for name, *_ in lines[-6:]} == {"test_b_measures"}
    assert len({process for _, process, _ in lines}) == processes


@pytest.mark.processes
def test_a_crashed_process_fails_the_run_and_the_other_tests_still_run(tmp_path: Path) -> None:
    suite(tmp_path, "a", "b_measures", "c", "d")
    (tmp_path / "test_crash.py").write_text("import os\n\ndef test_crash():\n    os._exit(1)\n")
    result = run(tmp_path, "-n2")
    assert result.returncode == 1, result.stdout + result.stderr
    assert "1 failed, 12 passed" in result.stdout
    assert "crashed while running 'test_crash.py::test_crash'" in result.stdout
