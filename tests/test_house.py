"""The rules of CONTRIBUTING.md about maps, folders, imports and names hold for every module of the product."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.house.imports import circles, graph, of_packages
from tests.house.names import BANNED, bound_names, public_classes, public_names, words
from tests.house.tree import exceptions, modules, modules_outside, packages

MOST_MODULES = 25


def unmapped(folder: Path) -> list[str]:
    """Modules and packages of a folder that its ``__init__`` does not name."""
    tree = modules().get(".".join(folder.parts))
    text = (ast.get_docstring(tree) if tree else None) or ""
    return [name for name in packages()[folder] if not re.search(rf"(?<![\w/.]){re.escape(name)}(\.py|/)", text)]


def banned_names() -> set[str]:
    return {
        name
        for module, tree in modules().items()
        for name in public_names(tree.body, module)
        if words(name.rpartition(".")[2]) & BANNED
    }


def shared_class_names() -> set[str]:
    counts = Counter(name for tree in modules().values() for name in public_classes(tree))
    return {name for name, count in counts.items() if count > 1}


def test_every_package_maps_its_parts() -> None:
    incomplete = {str(folder): missing for folder in packages() if (missing := unmapped(folder))}
    allowed = exceptions("open_maps.txt")
    assert {folder: missing for folder, missing in incomplete.items() if folder not in allowed} == {}
    assert allowed <= incomplete.keys(), "these maps are complete: remove them from open_maps.txt"


def test_a_map_names_nothing_that_is_gone() -> None:
    complete = {folder: names for folder, names in packages().items() if not unmapped(folder)}
    for folder, names in complete.items():
        tree = modules().get(".".join(folder.parts))
        lines = ((ast.get_docstring(tree) if tree else None) or "").splitlines()
        entries = [match[1] for line in lines if (match := re.match(r" *([a-z_0-9]+)(?:\.py|/)(?: {2,}| *$)", line))]
        assert [entry for entry in entries if entry not in names and not (folder / entry).exists()] == [], folder


@pytest.mark.parametrize("folder", packages(), ids=str)
def test_no_folder_is_crowded(folder: Path) -> None:
    assert len([name for name in packages()[folder] if (folder / f"{name}.py").exists()]) <= MOST_MODULES


def test_no_modules_import_each_other_in_a_circle() -> None:
    allowed = [frozenset(line.split()) for line in exceptions("circles.txt")]
    present = circles(graph())
    assert [sorted(circle) for circle in present if not any(circle <= group for group in allowed)] == []
    gone = [sorted(group) for group in allowed if not any(circle <= group for circle in present)]
    assert gone == [], "these circles are broken: remove them from circles.txt"


def test_no_packages_import_each_other_in_a_circle() -> None:
    """At any depth: a package counts with all that it contains."""
    imports = graph()
    packages_of = {module.rpartition(".")[0] for module in imports} - {""}
    present = {circle for package in packages_of for circle in circles(of_packages(imports, package))}
    allowed = {frozenset(line.split()) for line in exceptions("package_circles.txt")}
    assert sorted(sorted(circle) for circle in present - allowed) == []
    assert sorted(sorted(circle) for circle in allowed - present) == [], "remove them from package_circles.txt"


def test_a_circle_of_packages_is_detected() -> None:
    imports = {"r.a.x": {"r.b"}, "r.b": set[str](), "r.b.y": {"r.a.z"}, "r.a.z": set[str]()}
    assert circles(imports) == set()
    assert circles(of_packages(imports, "r")) == {frozenset({"r.a", "r.b"})}


def test_a_circle_is_detected() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == {frozenset("abc")}
    assert circles({"a": {"b"}, "b": {"c"}, "c": set(), "d": {"a"}}) == set()


def test_public_names_are_the_fields_words() -> None:
    names, allowed = banned_names(), exceptions("names.txt")
    assert sorted(names - allowed) == [], "use a word of the glossary in CONTRIBUTING.md"
    assert sorted(allowed - names) == [], "these names are gone: remove them from names.txt"


def test_no_variable_has_a_banned_word() -> None:
    names = {
        f"{module}.{name}" for module, tree in modules().items() for name in bound_names(tree) if words(name) & BANNED
    }
    allowed = exceptions("variables.txt")
    assert sorted(names - allowed) == [], "use the noun of the value: request, response, match, entry, model, …"
    assert sorted(allowed - names) == [], "these names are gone: remove them from variables.txt"


def test_no_name_of_tests_and_benchmarks_has_a_banned_word() -> None:
    names = [
        f"{module}.{name}" for module, tree in modules_outside() for name in bound_names(tree) if words(name) & BANNED
    ]
    assert sorted(names) == [], "use the noun of the value; a test's name is a sentence: subject, verb, object"


def test_bound_names_are_those_of_every_scope() -> None:
    code = "import a as told\ndef _f(known, *, asked):\n    self._kept, found = 1, [said for said in ()]\n"
    assert bound_names(ast.parse(code)) == {"told", "_f", "known", "asked", "_kept", "found", "said"}


def test_the_words_of_a_name() -> None:
    assert words("NotFoundError") == {"", "error"}
    assert words("tokensAsked_for") & BANNED == {"asked"}
    code = "class A:\n    def f(self, told): self.kept = 1\n    def _g(self, said): ...\nfound: int = 1\n_known = 2"
    names = set(public_names(ast.parse(code).body, "m"))
    assert {"m.A.f.told", "m.A.kept", "m.found"} <= names
    assert not {"m.A._g.said", "m._known"} & names


def test_no_two_public_classes_share_a_name() -> None:
    shared, allowed = shared_class_names(), exceptions("shared_class_names.txt")
    assert sorted(shared - allowed) == [], "rename one, or give the reason in shared_class_names.txt"
    assert sorted(allowed - shared) == [], "these are unique now: remove them from shared_class_names.txt"


def test_every_shared_name_has_its_reason() -> None:
    lines = Path("tests/house/shared_class_names.txt").read_text().splitlines()[1:]
    assert [line for line in lines if not line.partition("#")[2].strip()] == []
