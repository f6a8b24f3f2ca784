"""The second try of tests with processes, seen from small suites that run under it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import flaky

ROOT = Path(__file__).parents[1]
MOST = 1
"""Entries of `flaky.txt`. This number may only become smaller."""

CONFTEST = 'pytest_plugins = ["tests.support.shelves", "tests.support.flaky"]\n'
BY_CHANCE = """
import pathlib, pytest
{mark}
def test_by_chance():
    tried = pathlib.Path(__file__).with_name("tried")
    first = not tried.exists()
    tried.touch()
    assert not first, "the first look came too early"

def test_beside_it():
    pass
"""
ALWAYS = """
import pytest
@pytest.mark.processes
def test_always():
    assert False
"""


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "conftest.py").write_text(CONFTEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *options]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    env["PYTHONPATH"] = str(ROOT)
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300)


@pytest.mark.processes
@pytest.mark.parametrize("options", [(), ("-n2",)])
def test_a_test_that_passes_alone_is_reported_as_flaky(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "test_a.py").write_text(BY_CHANCE.format(mark="@pytest.mark.processes"))
    result = run(tmp_path, *options)
    assert result.returncode == 0, result.stdout
    assert "flaky (new" in result.stdout
    assert "the first look came too early" in result.stdout
    assert "1 passed, 1 flaky" in result.stdout


@pytest.mark.processes
def test_a_test_that_fails_twice_fails_the_run(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(BY_CHANCE.format(mark="@pytest.mark.processes"))
    (tmp_path / "test_b.py").write_text(ALWAYS)
    result = run(tmp_path)
    assert result.returncode == 1
    assert "1 failed, 1 passed, 1 flaky" in result.stdout


@pytest.mark.processes
def test_a_plain_test_has_no_second_try(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(BY_CHANCE.format(mark=""))
    result = run(tmp_path)
    assert result.returncode == 1
    assert "1 failed, 1 passed" in result.stdout


def test_the_list_of_flaky_tests_has_causes_and_shrinks() -> None:
    entries = flaky.listed_causes()
    assert len(entries) == MOST
    for name, cause in entries.items():
        path, _, test = name.partition("::")
        assert f"def {test.partition('[')[0]}(" in (ROOT / path).read_text(), name
        assert cause, name
