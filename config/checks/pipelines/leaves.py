"""Finds nodes without inner nodes that cannot work: inputs that are absent, models of another kind, drafts that are
no texts, and Python files without their function.
"""

import ast
import warnings
from collections.abc import Container, Iterator, Mapping
from typing import NamedTuple

from config.checks.pipelines.walk import Placed, model_names, model_of, nodes, pipelines, takes_tensors
from config.checks.references import targets
from config.document import Document, Node
from config.place import Place
from config.problem import Problem, closest
from config.schema.pipelines.call import CallConfig, CodeFile
from config.schema.pipelines.outputs import TakesTensors, outputs_of
from config.schema.pipelines.pipeline import DraftConfig, StepConfig


class _Syntax(NamedTuple):
    line: int
    message: str


def check_code(doc: Document, root: Node) -> Iterator[Problem]:
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


_RUNTIMES = {"tensor": "the bundled tensor runtime", "llm": "the bundled LLM runtime"}


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Report inputs that a node lacks or never reads, and models that cannot do its work."""
    configured, tensors = model_names(root), takes_tensors(root)
    hosts = {kind: _hosted(root, kind) for kind in _RUNTIMES}

    def takes(name: str) -> bool:
        return model_of(name, configured) is not None and tensors(name)

    for pipeline in pipelines(root):
        for entry in nodes(pipeline):
            yield from _inputs(doc, entry)
            yield from _drafts(doc, entry, takes)
            yield from _bundled(doc, entry, configured, hosts)
            score = entry.node.rerank.score if entry.node.rerank is not None else None
            if score is not None and model_of(score, configured) is not None and not takes(score):
                yield doc.problem((*entry.place, "rerank", "score"), "does not take tensors: use `embed`")


def _inputs(doc: Document, entry: Placed) -> Iterator[Problem]:
    """Report inputs of steps whose names the kind of the node fixes."""
    node = entry.node
    for kind, leaf in node.placed_leaves():
        fixed = leaf.fixed_inputs()
        if leaf.needs_inputs() and isinstance(node, StepConfig) and not node.inputs:
            yield doc.problem((*entry.place, kind), "needs `in`: each input becomes an output with its name")
        if fixed and isinstance(node, StepConfig) and node.inputs:
            for name in node.inputs:
                if name not in fixed:
                    place = (*entry.place, "in", name)
                    yield doc.problem_with_key(place, f"is not an input of `{kind}`", closest(name, list(fixed)))
            for name in sorted(fixed - node.inputs.keys()):
                yield doc.problem((*entry.place, "in"), f"`{kind}` needs the input `{name}`")


def _bundled(
    doc: Document, entry: Placed, configured: Mapping[str, str], hosts: Mapping[str, Container[str]]
) -> Iterator[Problem]:
    """Report models that the bundled runtime of their node's kind does not serve."""
    for kind, runtime in (("call", "tensor"), ("tokenize", "llm"), ("detokenize", "llm")):
        section = getattr(entry.node, kind)
        model = None if section is None or section.model is None else model_of(section.model, configured)
        if model is not None and model not in hosts[runtime]:
            message = (
                f"is not served by {_RUNTIMES[runtime]} alone: each of its pools needs `runtime: {{kind: {runtime}}}`"
            )
            yield doc.problem((*entry.place, kind), message)


def _hosted(root: Node, kind: str) -> frozenset[str]:
    """The models whose pools are all bundled runtimes of a kind."""
    pools = {pool["name"].text for pool in root["pools"] if pool["runtime"]["kind"].text == kind}
    hosted = set[str]()
    for model in root["models"]:
        used = [pool.text for route in model["routes"] for pool in targets(route)]
        if (name := model["name"].text) is not None and used and all(pool in pools for pool in used):
            hosted.add(name)
    return frozenset(hosted)


def _drafts(doc: Document, entry: Placed, takes: TakesTensors) -> Iterator[Problem]:
    """Report models of tensors among those that compare texts, and drafts without a text."""
    node = entry.node
    if node.judge is not None and takes(node.judge.model):
        message = f'"{node.judge.model}" takes tensors, and drafts are texts'
        yield doc.problem((*entry.place, "judge", "model"), message)
    if not isinstance(node, DraftConfig) or node.guard is not None:
        return
    outputs = outputs_of(node, takes)
    if outputs.is_open:
        label = node.answering_model() or node.label
        yield doc.problem(entry.place, f'"{label}" takes tensors, and drafts are texts')
    elif ("text",) not in outputs.declared:
        names = [".".join(path) for path in outputs.declared]
        shown = ", ".join(f"`{name}`" for name in names) or "none"
        message = f"has no output `text`, which a draft needs: its outputs are {shown}"
        yield doc.problem(entry.place, message, closest("text", names))
