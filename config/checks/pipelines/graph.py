"""Finds unknown models and references, pipelines that call themselves, steps that no output needs, and
graphs that are too deep or too wide.
"""

from collections.abc import Iterator, Mapping

from config.checks.pipelines.walk import Placed, PlacedPipeline, model_names, model_of, nodes, pipelines, takes_tensors
from config.document import Document, Node
from config.graph import GraphStep, cycle, needed, predecessors
from config.place import Place
from config.problem import Problem, closest
from config.schema.pipelines.outputs import REQUEST, TakesTensors, needs, outputs_of
from config.schema.pipelines.pipeline import NodeConfig, StepConfig


def check_names(doc: Document, root: Node) -> Iterator[Problem]:
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


MAX_DEPTH = 16
"""Calls one after the other, those of inner pipelines included."""
MAX_WIDTH = 64
"""Calls at the same time, those of inner pipelines included."""


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Report cycles first: the depth of a pipeline in a cycle has no end."""
    configured, by_model = model_names(root), {each.model: each for each in pipelines(root)}
    edges = {name: _called(each.config, configured, by_model) for name, each in by_model.items()}
    circular = cycle(edges)
    if circular:
        yield _circular(doc, by_model[circular[0]], circular, configured)
        return
    for each in by_model.values():
        yield from _unneeded(doc, each)
        yield from _sizes(doc, each, configured, by_model)


def _called(node: NodeConfig, configured: Mapping[str, str], by_model: Mapping[str, PlacedPipeline]) -> list[str]:
    """The pipelines that a node calls."""
    models = (model_of(name, configured) for name in node.models())
    return [model for model in dict.fromkeys(models) if model is not None and model in by_model]


def _circular(
    doc: Document, first: PlacedPipeline, circular: tuple[str, ...], configured: Mapping[str, str]
) -> Problem:
    names = [first.model, *reversed(circular[1:]), first.model]
    place = next(
        (*entry.place, *inside)
        for entry in nodes(first)
        for inside, model in entry.node.placed_models()
        if model_of(model, configured) == names[1]
    )
    return doc.problem(place, f"calls itself: {' → '.join(names)}")


def _unneeded(doc: Document, pipeline: PlacedPipeline) -> Iterator[Problem]:
    for entry in nodes(pipeline):
        yield from _guards(doc, entry)
        steps = entry.node.steps
        if not steps:
            continue
        final = [reference.partition(".")[0] for reference in entry.node.out.values()] or [steps[-1].name]
        own = {step.name for step in steps}
        graph = [
            GraphStep(step.name, tuple(each & own), (step.name,))
            for step, each in zip(steps, needs(steps), strict=True)
        ]
        useful = {step.name for step in needed(graph, final)}
        for index, step in enumerate(steps):
            if step.name not in useful:
                message = "is never used: no later step and no output refers to it, so it would not run"
                yield doc.problem((*entry.place, "steps", index, "name"), message)


def _guards(doc: Document, entry: Placed) -> Iterator[Problem]:
    """Report guards without anything to guard."""
    steps = entry.node.steps
    if entry.node.guard is not None and not isinstance(entry.node, StepConfig):
        yield doc.problem((*entry.place, "guard"), "guards nothing here: a guard is a step among others")
    for index, step in enumerate(steps):
        place = (*entry.place, "steps", index, "guard", "on")
        if step.guard is not None and step.guard.on == "request" and index == len(steps) - 1:
            yield doc.problem(place, "guards nothing: no step follows that it could prevent")
        if step.guard is not None and step.guard.on == "answer":
            before = [each for each in steps[:index] if each.guard is None]
            if not before:
                yield doc.problem(place, "guards nothing: no step before it has an answer")


def _sizes(
    doc: Document, pipeline: PlacedPipeline, configured: Mapping[str, str], all_: Mapping[str, PlacedPipeline]
) -> Iterator[Problem]:
    depth, width = _measure(pipeline.config, configured, all_)
    if depth > MAX_DEPTH:
        yield doc.problem(pipeline.place, f"has {depth} steps one after the other: the maximum is {MAX_DEPTH}")
    if width > MAX_WIDTH:
        yield doc.problem(pipeline.place, f"calls {width} models at the same time: the maximum is {MAX_WIDTH}")


def _measure(
    node: NodeConfig, configured: Mapping[str, str], by_model: Mapping[str, PlacedPipeline]
) -> tuple[int, int]:
    """The most calls one after the other, and at the same time."""
    if any(node.placed_leaves()):
        depth, width = 1, max(sum(1 for _ in node.placed_models()), 1)
    elif node.model is not None:
        inner = by_model.get(model_of(node.model, configured) or "")
        depth, width = (1, 1) if inner is None else _measure(inner.config, configured, by_model)
    elif node.steps:
        depth, width = _of_steps(node, configured, by_model)
    elif node.judge is not None or node.agree is not None:
        depth, width = _of_drafts(node, configured, by_model)
    else:
        sizes = [_measure(each, configured, by_model) for each in node.nodes()]
        depth = max((each for each, _ in sizes), default=1)
        widths = [each for _, each in sizes]
        width = max(widths) if node.switch else sum(widths)
    if isinstance(node, StepConfig) and node.each:
        width *= node.at_most
    return depth, width


def _of_drafts(
    node: NodeConfig, configured: Mapping[str, str], by_model: Mapping[str, PlacedPipeline]
) -> tuple[int, int]:
    """Depth and width of the drafts, and of one judgement behind them."""
    sizes = [_measure(each, configured, by_model) for each in node.nodes()]
    copies = max(section.n for _, section in node.placed_drafts())
    return max(depth for depth, _ in sizes) + (node.judge is not None), copies * sum(width for _, width in sizes)


def _of_steps(
    node: NodeConfig, configured: Mapping[str, str], by_model: Mapping[str, PlacedPipeline]
) -> tuple[int, int]:
    """Depth and width of a sequence. Steps at the same distance from the request may run at the same time."""
    own = {step.name for step in node.steps}
    graph = [
        GraphStep(step.name, tuple(each & own), (step.name,))
        for step, each in zip(node.steps, needs(node.steps), strict=True)
    ]
    before, ends, widths = predecessors(graph), dict[str, int](), dict[int, int]()
    for step in node.steps:
        depth, width = _measure(step, configured, by_model)
        start = max((ends.get(name, 0) for name in before[step.name]), default=0)
        ends[step.name] = start + depth
        widths[start] = widths.get(start, 0) + width
    return max(ends.values()), max(widths.values())
