"""A file of tests imports from no other one: what they share is in `tests/support`."""

import ast
import re
from pathlib import Path

IMPORT = re.compile(r"^\s*(?:from|import) .*\btest_", re.MULTILINE)
"""A line that may import tests. Most files have none and need not be parsed."""


def imported_tests(tree: ast.Module) -> set[str]:
    """The files of tests that a module imports, or imports from, also inside functions."""
    named = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names if alias.name.startswith("tests.")}
        elif isinstance(node, ast.ImportFrom) and (node.level or str(node.module).startswith("tests")):
            named |= {str(node.module), *(alias.name for alias in node.names)}
    return {name for name in named if name.rpartition(".")[2].startswith("test_")}


def test_an_import_of_tests_is_noticed() -> None:
    code = "import tests.a.test_b\nfrom tests.a import test_c, d\ndef f(): from .test_e import g"
    assert imported_tests(ast.parse(code)) == {"tests.a.test_b", "test_c", "test_e"}


def test_no_file_of_tests_is_imported() -> None:
    importing = [
        str(path)
        for path in Path("tests").rglob("*.py")
        if IMPORT.search(source := path.read_text()) and imported_tests(ast.parse(source))
    ]
    assert sorted(importing) == [], "move what they share to a module of tests/support, named by its noun"
