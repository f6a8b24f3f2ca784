"""The import graph of the product, and its circles."""

import ast
from collections.abc import Iterator

from tests.house.tree import ROOMS, modules

Graph = dict[str, set[str]]


def graph() -> Graph:
    """Each module to the modules that it imports, also inside functions and for type checkers."""
    return {name: set(_imports(tree)) & modules().keys() - {name} for name, tree in modules().items()}


def of_packages(imports: Graph, package: str) -> Graph:
    """The imports between the parts of a package: its modules, and its packages with all that they contain."""

    def part(module: str) -> str:
        return ".".join(module.split(".")[: package.count(".") + 2]) if module.startswith(f"{package}.") else ""

    parts: Graph = {name: set() for module in imports if (name := part(module))}
    for module, imported in imports.items():
        if name := part(module):
            parts[name] |= {other for each in imported if (other := part(each)) and other != name}
    return parts


def circles(imports: Graph) -> set[frozenset[str]]:
    """The largest sets of modules in which each one reaches every other one."""
    reached = {name: _reached(imports, name) for name in imports}
    return {
        frozenset(other for other in reached[name] if name in reached[other])
        for name in imports
        if name in reached[name]
    }


def _reached(imports: Graph, start: str) -> set[str]:
    reached: set[str] = set()
    waiting = list(imports[start])
    while waiting:
        if (name := waiting.pop()) not in reached:
            reached.add(name)
            waiting += imports[name]
    return reached


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ROOMS:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in modules() else str(node.module)
