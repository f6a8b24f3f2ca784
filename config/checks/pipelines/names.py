"""Finds names in pipelines that do not exist: models, and the steps of references."""

from collections.abc import Iterator

from config.checks.pipelines.walk import Placed, model_names, model_of, nodes, pipelines
from config.document import Document
from config.node import Node
from config.place import Place
from config.problem import Problem, closest
from config.schema.pipelines.pipeline import StepConfig

REQUEST = "request"


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Report unknown models, unknown and later steps, and names that are given twice."""
    known = model_names(root)
    for found in pipelines(root):
        placed = list(nodes(found))
        yield from _twice(doc, placed)
        names = [entry.node.name for entry in placed if isinstance(entry.node, StepConfig)]
        for entry in placed:
            model = entry.node.model
            if model is not None and model_of(model, known) is None:
                yield doc.problem((*entry.place, "model"), f'no model is named "{model}"', closest(model, known))
            for inside, reference in entry.node.references():
                yield from _reference(doc, (*entry.place, *inside), reference, entry.visible, names)
            inner = tuple(step.name for step in entry.node.steps)
            for name, reference in entry.node.out.items():
                yield from _reference(doc, (*entry.place, "out", name), reference, entry.visible + inner, names)


def _twice(doc: Document, placed: list[Placed]) -> Iterator[Problem]:
    """Report steps of one pipeline with one name: a reference would be ambiguous."""
    first: dict[str, Place] = {}
    for entry in placed:
        if isinstance(entry.node, StepConfig):
            place = (*entry.place, "name")
            if entry.node.name in first:
                line = doc.line(first[entry.node.name])
                yield doc.problem(place, f"is given twice, first on line {line}")
            first.setdefault(entry.node.name, place)


def _reference(
    doc: Document, place: Place, reference: str, visible: tuple[str, ...], names: list[str]
) -> Iterator[Problem]:
    step = reference.partition(".")[0]
    if step == REQUEST or step in visible:
        return
    if step in names:
        message = f'refers to the step "{step}", which does not come before this one: move it up'
        yield doc.problem(place, message)
    else:
        known = [REQUEST, *visible]
        yield doc.problem(place, f'no earlier step is named "{step}"', closest(step, known))
