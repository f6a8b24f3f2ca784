"""Public names of modules, and the words in them."""

import ast
import re
from collections.abc import Iterator

BANNED = {
    "anybody", "asked", "asking", "asks", "books", "bury", "crew", "desk", "everybody", "farewell", "farewells",
    "found", "hear", "heard", "hiring", "keeps", "kept", "known", "learned", "nobody", "pocket", "pockets",
    "retold", "said", "say", "saying", "says", "seat", "seats", "somebody", "tell", "telling", "tells", "told",
    "want", "wanted", "wants", "what", "who", "whoever", "whom", "whose",
}  # fmt: skip
"""Words that CONTRIBUTING.md replaces by the field's. ``not_found`` is HTTP's and is allowed."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def words(name: str) -> set[str]:
    """The words of ``snake_case`` and ``CamelCase``."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return set(snake.replace("not_found", "").split("_"))


def public_names(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    """Dotted names of classes, functions, parameters, attributes and constants in the body of a module or a class."""
    for node in body:
        if isinstance(node, ast.ClassDef | Function):
            if node.name.startswith("_") and node.name != "__init__":
                continue
            yield f"{prefix}.{node.name}"
            if isinstance(node, ast.ClassDef):
                yield from public_names(node.body, f"{prefix}.{node.name}")
            else:
                yield from (f"{prefix}.{node.name}.{name}" for name in _parameters(node))
                yield from (f"{prefix}.{name}" for name in _attributes(node))
        elif isinstance(node, ast.If | ast.Try):
            yield from public_names(node.body, prefix)
        else:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            yield from (f"{prefix}.{name}" for name in names if not name.startswith("_"))


def public_classes(tree: ast.Module) -> Iterator[str]:
    """Classes of a module that another one may import."""
    return (node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_"))


def _parameters(function: Function) -> Iterator[str]:
    arguments = function.args
    listed = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return (argument.arg for argument in listed if not argument.arg.startswith("_"))


def _attributes(function: Function) -> set[str]:
    """What a method assigns to ``self``."""
    return {
        node.attr
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
        and not node.attr.startswith("_")
    }


def bound_names(tree: ast.Module) -> set[str]:
    """Every name that a module binds, private ones too: functions, classes, parameters, variables and attributes."""
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | Function):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, ast.alias) and node.asname is not None:
            names.add(node.asname)
    return names
