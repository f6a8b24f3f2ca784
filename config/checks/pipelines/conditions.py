"""Finds conditions that are invalid, of another type, or the same for every request; and branches that never run."""

from collections.abc import Iterator

from config.checks.pipelines.walk import Placed, nodes, pipelines, takes_tensors
from config.document import Document
from config.expressions import BOOL, MISSING, CompileError, Variables, compile_expression
from config.node import Node
from config.place import Place
from config.problem import Problem
from config.schema.pipelines.outputs import TakesTensors, outputs_of, own_values, request_of, variables
from config.schema.pipelines.pipeline import PipelineConfig


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Report every condition that does not compile or never changes, and misplaced branches of switches."""
    tensors = takes_tensors(root)
    for pipeline in pipelines(root):
        for entry in nodes(pipeline):
            scope = _variables(pipeline.config, entry, tensors)
            yield from _stages(doc, entry)
            for inside, text in entry.node.conditions():
                yield from _condition(doc, (*entry.place, *inside), text, scope)
            yield from _branches(doc, entry)


def _variables(pipeline: PipelineConfig, entry: Placed, tensors: TakesTensors) -> Variables:
    steps = {step.name: outputs_of(step, tensors) for step in entry.visible}
    return variables(request_of(pipeline, tensors), steps, own_values(entry.node, tensors))


def _condition(doc: Document, place: Place, text: str, scope: Variables) -> Iterator[Problem]:
    try:
        expression = compile_expression(text, scope, BOOL)
    except CompileError as error:
        yield doc.problem(place, f"column {error.column}: {error.message}", error.suggestion)
        return
    if expression.constant is not MISSING:
        word = "holds for every request" if expression.constant else "never holds"
        yield doc.problem(place, f"{word}: it does not depend on any value")


def _branches(doc: Document, entry: Placed) -> Iterator[Problem]:
    branches = entry.node.switch
    for index, branch in enumerate(branches):
        place = (*entry.place, "switch", index)
        if branch.otherwise and index < len(branches) - 1:
            yield doc.problem((*place, "else"), "comes last: no branch after it is ever evaluated")
    if branches and not branches[-1].otherwise:
        place = (*entry.place, "switch", len(branches) - 1)
        yield doc.problem(place, "is the last branch, and other requests have none: add a branch with `else: true`")


def _stages(doc: Document, entry: Placed) -> Iterator[Problem]:
    stages = entry.node.cascade
    if len(stages) == 1:
        yield doc.problem((*entry.place, "cascade"), "has one stage: give a second one, or write it as a `model`")
    for index, stage in enumerate(stages):
        place = (*entry.place, "cascade", index)
        if index == len(stages) - 1:
            for name in ("accept_if", "hold"):
                if getattr(stage, name) is not None:
                    message = "has no effect: the last stage's answer is always accepted"
                    yield doc.problem_with_key((*place, name), message)
        elif stage.accept_if is None:
            yield doc.problem(place, "needs `accept_if`: without it no later stage ever answers")
