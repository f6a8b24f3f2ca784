"""Finds Python files that cannot run: a mistake in the syntax, a missing function, other parameters than the inputs.

The code is parsed and never executed.
"""

import ast
import warnings
from collections.abc import Iterator
from typing import NamedTuple

from config.checks.pipelines.walk import nodes, pipelines
from config.document import Document
from config.node import Node
from config.place import Place
from config.problem import Problem, closest
from config.schema.pipelines.call import CallConfig, CodeFile


class _Syntax(NamedTuple):
    line: int
    message: str


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Report files that do not compile, and functions that do not fit the inputs of the step."""
    for pipeline in pipelines(root):
        for entry in nodes(pipeline):
            call = entry.node.call
            if call is not None and call.file is not None:
                yield from _file(doc, (*entry.place, "call"), call, call.file)


def _file(doc: Document, place: Place, call: CallConfig, file: CodeFile) -> Iterator[Problem]:
    for side, tensors in (("inputs", call.inputs), ("outputs", call.outputs)):
        names = [tensor.name for tensor in tensors]
        for index, name in enumerate(names):
            if name in names[:index]:
                yield doc.problem((*place, side, index, "name"), f'"{name}" is given twice')
    tree = _parsed(file)
    if isinstance(tree, _Syntax):
        yield doc.problem((*place, "file"), f"{file.path}, line {tree.line}: {tree.message}")
        return
    functions = {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    bound = {name for each in tree.body for name in _bound(each)}
    at = (*place, "function") if "function" in call.model_fields_set else (*place, "file")
    if call.function not in bound:
        yield doc.problem(at, f"{file.path} has no function `{call.function}`", closest(call.function, functions))
    elif call.function in functions:
        yield from _parameters(doc, at, call, functions[call.function], file)


def _parsed(file: CodeFile) -> ast.Module | _Syntax:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(file.text, file.path)
    except SyntaxError as error:
        return _Syntax(error.lineno or 1, error.msg)
    except (ValueError, RecursionError, MemoryError) as error:  # a NUL, or expressions that are nested too deeply
        return _Syntax(1, str(error) or "the code is nested too deeply")


def _bound(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement at the top of a module binds, also inside `if` and `try`."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
        return
    if isinstance(statement, ast.Import | ast.ImportFrom):
        yield from ((each.asname or each.name).partition(".")[0] for each in statement.names)
        return
    for child in ast.walk(statement):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child.id
        elif child is not statement and isinstance(child, ast.stmt):
            yield from _bound(child)


def _parameters(
    doc: Document, at: Place, call: CallConfig, function: ast.FunctionDef | ast.AsyncFunctionDef, file: CodeFile
) -> Iterator[Problem]:
    """Report a function that cannot be called with the inputs as keyword arguments."""
    where, inputs = f"{file.path}, line {function.lineno}", {tensor.name for tensor in call.inputs}
    if isinstance(function, ast.AsyncFunctionDef):
        yield doc.problem(at, f"{where}: `{function.name}` is async: it must be a plain function")
        return
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    optional = {each.arg for each in positional[len(positional) - len(arguments.defaults) :]}
    optional |= {each.arg for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if default}
    named = {each.arg for each in (*arguments.args, *arguments.kwonlyargs)}
    required = {each.arg for each in (*positional, *arguments.kwonlyargs)} - optional
    for name in sorted(inputs - named if arguments.kwarg is None else ()):
        message = f"{where}: `{function.name}` has no parameter `{name}`, which is an input"
        yield doc.problem(at, message, closest(name, named))
    for name in sorted(required - inputs):
        yield doc.problem(at, f"{where}: `{function.name}` needs `{name}`, which is not an input")
