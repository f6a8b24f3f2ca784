"""Each test is on one shelf, which its folder or one mark decides."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import shelves

FILES = sorted(Path("tests").rglob("test_*.py"))
MARK = re.compile(r"\bpytest\.mark\.(\w+)")


def shelf_marks(text: str) -> list[str]:
    return [name for name in MARK.findall(text) if name in shelves.SHELVES]


def decorated(tree: ast.Module) -> Iterator[tuple[str, list[str]]]:
    """Each function and class with the shelves among its decorators."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            marks = (ast.unparse(each).removeprefix("pytest.mark.") for each in node.decorator_list)
            yield node.name, [mark for mark in marks if mark in shelves.SHELVES]


def test_the_folders_exist() -> None:
    assert [folder for folder in shelves.FOLDERS if not Path(folder).is_dir()] == []


def test_a_file_and_a_test_have_one_shelf_each_and_no_mark_repeats_it() -> None:
    faults: list[str] = []
    for path in FILES:
        source = path.read_text()
        if "pytest.mark" not in source:
            continue
        own = next((line for line in source.splitlines() if line.startswith("pytestmark")), "")
        of_file, default = shelf_marks(own), shelves.folder_shelf(path.as_posix())
        if len(of_file) > 1 or of_file == [default]:
            faults.append(f"{path}: {own}: the folder's shelf is {default}")
        if of_file and shelves.file_shelf(path.as_posix(), source) != of_file[0]:
            faults.append(f"{path}: the shelf comes first in `pytestmark`, on the same line")
        shelf = shelves.file_shelf(path.as_posix(), source)
        for name, marks in decorated(ast.parse(source)):
            if (len(marks) > 1 and len(marks) != len(set(marks))) or marks == [shelf]:
                faults.append(f"{path}: {name}: {marks} in a file of the shelf {shelf}")
    assert faults == []


@pytest.mark.parametrize(
    ("path", "source", "expected"),
    [
        ("tests/policies/test_a.py", "", {"plain"}),
        ("tests/e2e/test_a.py", "", {"processes"}),
        ("tests/e2e/test_a.py", "pytestmark = [pytest.mark.servers, pytest.mark.timeout(9)]", {"servers"}),
        ("tests/gateway/test_a.py", "@pytest.mark.servers\ndef test(): ...", {"plain", "servers"}),
        ("tests/gateway/test_a.py", "def test(any_database): ...", {"plain", "processes"}),
        ("tests/runtimes/test_a.py", "pytestmark = pytest.mark.plain", {"plain"}),
    ],
)
def test_the_shelves_of_a_file_are_read_without_its_import(path: str, source: str, expected: set[str]) -> None:
    assert shelves.shelves_of(path, source) == expected


def test_a_run_collects_its_shelf_only(pytestconfig: pytest.Config, request: pytest.FixtureRequest) -> None:
    chosen = shelves.selected(pytestconfig)
    assert {shelves.item_shelf(item) for item in request.session.items} <= set(chosen)
