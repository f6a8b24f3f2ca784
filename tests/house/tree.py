"""The modules of the product, and of its tests and benchmarks, parsed once."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOMS = ("config", "policies", "adapters", "runtimes", "gateway")
_NOT_OURS = Path("runtimes/tensor/catalogue/models")  # programs of models, each of which runs alone


@cache
def files() -> dict[str, Path]:
    """Dotted name to file. A package has the name of its folder."""
    paths = (path for room in ROOMS for path in sorted(Path(room).rglob("*.py")) if _NOT_OURS not in path.parents)
    return {".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


@cache
def modules() -> dict[str, ast.Module]:
    """Dotted name to syntax tree. Parsed by tests, not while each process of pytest collects them."""
    return {name: ast.parse(path.read_text()) for name, path in files().items()}


def modules_outside() -> Iterator[tuple[str, ast.Module]]:
    """The modules of tests and benchmarks: dotted name and syntax tree, one at a time to save memory."""
    for folder in ("tests", "loadtests"):
        for path in sorted(Path(folder).rglob("*.py")):
            yield ".".join(path.with_suffix("").parts), ast.parse(path.read_text())


@cache
def packages() -> dict[Path, tuple[str, ...]]:
    """Folder to the modules and packages in it, without ``__init__``."""
    children: dict[Path, set[str]] = {}
    for name in files():
        parts = name.split(".")
        if Path(*parts).is_dir():
            children.setdefault(Path(*parts), set())
        if len(parts) > 1:
            children.setdefault(Path(*parts[:-1]), set()).add(parts[-1])
    return {folder: tuple(sorted(names)) for folder, names in sorted(children.items())}


def exceptions(name: str) -> set[str]:
    """The lines of one file of exceptions, without comments."""
    lines = (Path(__file__).parent / name).read_text().splitlines()
    return {text for line in lines if (text := line.partition("#")[0].strip())}


def files_with(pattern: str) -> set[str]:
    """Product files that hold the pattern, without those of `config` and `policies`."""
    parts = ("adapters", "gateway", "runtimes")
    return {str(path) for path in files().values() if path.parts[0] in parts and re.search(pattern, path.read_text())}
