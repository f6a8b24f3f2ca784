"""Finds names in pipelines that do not exist: models, and the steps of references."""

from collections.abc import Iterator

from config.checks.pipelines.walk import Placed, model_names, model_of, nodes, pipelines, takes_tensors
from config.document import Document
from config.node import Node
from config.place import Place
from config.problem import Problem, closest
from config.schema.pipelines.outputs import REQUEST, TakesTensors, outputs_of
from config.schema.pipelines.pipeline import StepConfig


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Report unknown models, unknown and later steps, and names that are given twice."""
    configured, tensors = model_names(root), takes_tensors(root)
    for pipeline in pipelines(root):
        placed = list(nodes(pipeline))
        yield from _twice(doc, placed)
        for entry in placed:
            yield from _labels(doc, entry)
        names = [entry.node.name for entry in placed if isinstance(entry.node, StepConfig)]
        for entry in placed:
            for inside, model in entry.node.placed_models():
                if model_of(model, configured) is None:
                    yield doc.problem(
                        (*entry.place, *inside), f'no model is named "{model}"', closest(model, configured)
                    )
            for inside, reference in entry.node.references():
                yield from _reference(doc, (*entry.place, *inside), reference, entry.visible, names, tensors)
                yield from _given(doc, (*entry.place, *inside), reference, entry.given)
            inner = entry.node.steps
            for name, reference in entry.node.out.items():
                yield from _reference(
                    doc, (*entry.place, "out", name), reference, entry.visible + inner, names, tensors
                )
                own = frozenset(entry.node.inputs) if isinstance(entry.node, StepConfig) else frozenset[str]()
                yield from _given(doc, (*entry.place, "out", name), reference, own or entry.given)


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


def _given(doc: Document, place: Place, reference: str, given: frozenset[str]) -> Iterator[Problem]:
    """Report a reference to an input that the step around does not have. The client's own inputs are not known."""
    step, _, name = reference.partition(".")
    if step == REQUEST and given and name not in given:
        message = f'the enclosing step has no input "{name}": it has {", ".join(sorted(given))}'
        yield doc.problem(place, message, closest(name, given))


def _labels(doc: Document, entry: Placed) -> Iterator[Problem]:
    """Report members of an ensemble, stages of a cascade and drafts with one name: logs and metrics would mix them."""
    members = () if entry.node.ensemble is None else entry.node.ensemble.members
    yield from _distinct(doc, (*entry.place, "ensemble", "members"), [(each.name, each.label) for each in members])
    yield from _distinct(doc, (*entry.place, "cascade"), [(each.name, each.label) for each in entry.node.cascade])
    for kind, section in entry.node.placed_drafts():
        yield from _distinct(doc, (*entry.place, kind, "of"), [(each.name, each.label) for each in section.of])


def _distinct(doc: Document, place: Place, parts: list[tuple[str | None, str]]) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for index, (name, label) in enumerate(parts):
        at = (*place, index) if name is None else (*place, index, "name")
        if label in first:
            line = doc.line((*place, first[label]))
            yield doc.problem(at, f'the name "{label}" is given twice, first on line {line}: give each part a `name`')
        first.setdefault(label, index)


def _reference(
    doc: Document,
    place: Place,
    reference: str,
    visible: tuple[StepConfig, ...],
    names: list[str],
    tensors: TakesTensors,
) -> Iterator[Problem]:
    step, _, output = reference.partition(".")
    if step == REQUEST:
        return
    producer = next((each for each in visible if each.name == step), None)
    if producer is not None:
        outputs = outputs_of(producer, tensors)
        declared = [".".join(path) for path in outputs.declared]
        if not outputs.is_open and output not in declared:
            yield doc.problem(place, f'the step "{step}" has no output "{output}"', closest(output, declared))
    elif step in names:
        message = f'refers to the step "{step}", which does not come before this one: move it up'
        yield doc.problem(place, message)
    else:
        available = [REQUEST, *(each.name for each in visible)]
        yield doc.problem(place, f'no earlier step is named "{step}"', closest(step, available))
