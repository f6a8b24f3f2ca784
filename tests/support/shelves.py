"""The shelves of tests: what a test needs decides which target runs it.

A test stands on the shelf of its folder, unless a mark names another one: `@pytest.mark.processes` on a test, or
`pytestmark = pytest.mark.processes` for a file. `--shelf=NAME` collects one shelf and imports no file that has no test
on it, so a shelf collects whole where only its own packages are installed. (After a blank instead of `=`, pytest takes
the name of a folder for a path of tests before it knows the option.)
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
PLAIN = "plain"
SHELVES: Mapping[str, str] = {
    PLAIN: "no process, no real time, nothing but the base installation and small packages",
    "runtimes": "both runtimes in this process: torch, ONNX, OpenVINO, scikit-learn",
    "processes": "real time, processes of our own, a browser, Redis, Postgres",
    "servers": "real foreign servers, brokers and clients, some gigabytes of them",
    "benchmarks": "the programs of `loadtests`",
}
"""Each shelf and what its tests need. The names are marks too."""

FOLDERS: Mapping[str, str] = {
    "tests/conformance": "servers",
    "tests/deploy": "processes",
    "tests/e2e": "processes",
    "tests/gateway/features/bus": "servers",
    "tests/loadtests": "benchmarks",
    "tests/runtimes": "runtimes",
    "tests/servers": "servers",
}
"""The shelf of every test in a folder and below, if no mark names another one. Elsewhere it is the plain shelf."""

FIXTURES: Mapping[str, str] = {"any_database": "processes", "on_shelf": "processes"}
"""Fixtures, and functions for parameters, of which one value has a mark; and the shelf of that value."""

PACKAGE = "torch"
"""Its tests import this package, on every shelf but the plain one."""

WAITS = "waits"
"""The mark of a test that lets time pass. On uvloop, whose clock is always the real one, it is on `processes`."""
VIRTUAL = "virtual"
"""The mark of such a test that compares two durations. On a real clock a stall would decide, so uvloop has none."""

_NAMES = "|".join(SHELVES)
_FILE_MARK = re.compile(rf"^pytestmark = \[?pytest\.mark\.({_NAMES})\b", re.MULTILINE)
_MARK = re.compile(rf"\bpytest\.mark\.({_NAMES})\b")


def folder_shelf(path: str) -> str:
    """The shelf of a file's folder. `path` is relative to the project's root."""
    return next((shelf for folder, shelf in FOLDERS.items() if path.startswith(f"{folder}/")), PLAIN)


def file_shelf(path: str, source: str) -> str:
    """The shelf of the tests of a file that have no mark of their own."""
    mark = _FILE_MARK.search(source)
    return folder_shelf(path) if mark is None else mark[1]


def shelves_of(path: str, source: str) -> set[str]:
    """The shelves that have tests of a file. The file is read and not imported, since it may import what is absent."""
    values = {shelf for name, shelf in FIXTURES.items() if name in source}
    if f"pytest.mark.{WAITS}" in source:
        values.add("processes")
    return {file_shelf(path, source), *_MARK.findall(source)} | values


def item_shelf(item: pytest.Item) -> str:
    """The shelf of a test: the nearest mark, or that of its folder. Empty for one that never runs on its loop."""
    if item.get_closest_marker(VIRTUAL) is not None and "uvloop" in item.name:
        return ""
    if item.get_closest_marker(WAITS) is not None and "uvloop" in item.name:
        return "processes"
    names = (mark.name for mark in item.iter_markers() if mark.name in SHELVES)
    return next(names, folder_shelf(item.nodeid))


@cache
def installed() -> tuple[str, ...]:
    """The shelves whose packages are installed."""
    return tuple(SHELVES) if find_spec(PACKAGE) else (PLAIN,)


def selected(config: pytest.Config) -> tuple[str, ...]:
    """The shelves of this run: those of `--shelf`, or all that are installed."""
    return tuple(config.getoption("shelf")) or installed()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--shelf", action="append", default=[], choices=list(SHELVES), help="run the tests of this shelf (repeatable)"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{WAITS}: a test that lets time pass, which on uvloop is not plain")
    config.addinivalue_line("markers", f"{VIRTUAL}: a test that compares durations, never run on uvloop's real clock")
    for name, needs in SHELVES.items():
        config.addinivalue_line("markers", f"{name}: a test of the shelf that needs {needs}")


def pytest_report_header(config: pytest.Config) -> str:
    absent = [name for name in SHELVES if name not in installed()]
    reason = f"; without {PACKAGE}, left out are {', '.join(absent)}" if absent and not config.option.shelf else ""
    return f"shelves: {', '.join(selected(config))}{reason}"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out a file or a folder before it is imported, if no test in it is on a selected shelf."""
    if not collection_path.is_relative_to(TESTS) or collection_path == TESTS:
        return None
    chosen = set(selected(config))
    if collection_path.is_dir():
        return None if any(_of(file) & chosen for file in collection_path.rglob("test_*.py")) else True
    is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    return True if is_test and not _of(collection_path) & chosen else None


@cache
def _of(file: Path) -> set[str]:
    return shelves_of(file.relative_to(ROOT).as_posix(), file.read_text())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of a file that are on other shelves than the selected ones."""
    chosen = selected(config)
    others = [item for item in items if item_shelf(item) not in chosen]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item_shelf(item) in chosen]
