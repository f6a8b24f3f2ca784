"""Finds fields of pipelines that have no effect, and steps that can only fail."""

from collections.abc import Iterator

from config.checks.pipelines.walk import Placed, PlacedPipeline, model_names, model_of, nodes, pipelines, takes_tensors
from config.document import Document, Node
from config.place import Place
from config.problem import Problem, closest
from config.schema.pipelines.outputs import TakesTensors
from config.schema.pipelines.pipeline import EnsembleConfig, NodeConfig, PipelineConfig, StepConfig


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Report fields that a reader of the file would expect to have an effect."""
    tensors = takes_tensors(root)
    for placed in pipelines(root):
        yield from _declared(doc, placed)
        yield from _budget(doc, root, placed)
        for entry in nodes(placed):
            yield from _step(doc, entry, placed.config, tensors)
            yield from _ensemble(doc, entry, tensors)
            yield from _switch(doc, entry)
            yield from _cascade(doc, entry, tensors)
            yield from _failures(doc, entry)
        yield from _held(doc, placed.config, placed.place, is_live=True)


def _declared(doc: Document, placed: PlacedPipeline) -> Iterator[Problem]:
    for field, tensors in (("inputs", placed.config.inputs), ("outputs", placed.config.outputs)):
        names = [tensor.name for tensor in tensors]
        for index, name in enumerate(names):
            if name in names[:index]:
                yield doc.problem((*placed.place, field, index, "name"), f'"{name}" is given twice')


def _budget(doc: Document, root: Node, placed: PlacedPipeline) -> Iterator[Problem]:
    """Report a budget of money without any price that counts against it."""
    budget, own = placed.config.budget, model_names(root)
    if budget is None or budget.spend is None:
        return
    place = (*placed.place, "budget", "spend")
    priced = {model["name"].text for model in root["models"] if "price" in model or "pipeline" in model}
    if any(model["name"].text == placed.model and "price" in model for model in root["models"]):
        yield doc.problem_with_key(place, "has no effect: the pipeline has a `price` of its own")
    elif not any(model_of(model, own) in priced for model in placed.config.models()):
        yield doc.problem_with_key(place, "has no effect: none of its models has a `price`")


def _step(doc: Document, entry: Placed, pipeline: PipelineConfig, tensors: TakesTensors) -> Iterator[Problem]:
    step = entry.node
    if not isinstance(step, StepConfig):
        return
    if step.explain and step.model is None:
        yield doc.problem_with_key((*entry.place, "explain"), "needs `model`: the model whose answer is explained")
    elif step.explain and step.model is not None and not tensors(step.model):
        message = "needs a model of tensors: no server of chats explains its answers"
        yield doc.problem_with_key((*entry.place, "explain"), message)
    for name in ("at_most", "max_rows"):
        if name in step.model_fields_set and not step.each:
            yield doc.problem_with_key((*entry.place, name), "has no effect without `each: true`")
    if step.each and not step.inputs and not entry.given:
        yield doc.problem_with_key((*entry.place, "each"), "needs `in`: the values whose rows are computed one by one")
    if step.at_least is not None and pipeline.deadline is not None and step.at_least >= pipeline.deadline:
        message = f"is not less than the deadline of {pipeline.deadline:g} s: the step always fails"
        yield doc.problem((*entry.place, "at_least"), message)


def _ensemble(doc: Document, entry: Placed, tensors: TakesTensors) -> Iterator[Problem]:
    config = entry.node.ensemble
    if config is None:
        return
    place = (*entry.place, "ensemble")
    if len(config.members) == 1:
        yield doc.problem((*place, "members"), "has one member: give a second one, or write it as a `model`")
    models = [member.answering_model() for member in config.members]
    if config.combine in ("vote", "concat") and len({tensors(model) for model in models if model is not None}) > 1:
        yield doc.problem((*place, "members"), "answer with tensors and with texts, which do not combine")
    yield from _combination(doc, place, config)


def _combination(doc: Document, place: Place, config: EnsembleConfig) -> Iterator[Problem]:
    if "axis" in config.model_fields_set and config.combine != "concat":
        yield doc.problem_with_key((*place, "axis"), f"has no effect with `combine: {config.combine}`")
    for index, member in enumerate(config.members):
        if "weight" in member.model_fields_set and config.combine in ("concat", "first"):
            message = f"has no effect with `combine: {config.combine}`"
            yield doc.problem_with_key((*place, "members", index, "weight"), message)
    if config.within is not None and config.least >= len(config.members):
        message = "has no effect: all members must answer. Give `need` fewer of them"
        yield doc.problem_with_key((*place, "within"), message)


def _switch(doc: Document, entry: Placed) -> Iterator[Problem]:
    branches = entry.node.switch
    if len(branches) == 1 and branches[0].otherwise:
        yield doc.problem((*entry.place, "switch"), "has one branch: add one with `if`, or write it as a `model`")
    for index, branch in enumerate(branches):
        if branch.condition and branch.condition in [each.condition for each in branches[:index]]:
            message = "is the condition of an earlier branch: this branch never answers"
            yield doc.problem((*entry.place, "switch", index, "if"), message)


def _cascade(doc: Document, entry: Placed, tensors: TakesTensors) -> Iterator[Problem]:
    stages, place = entry.node.cascade, (*entry.place, "cascade")
    for index, stage in enumerate(stages[:-1]):
        if stage.hold is not None and stage.model is not None and tensors(stage.model):
            yield doc.problem_with_key((*place, index, "hold"), "has no effect on a model of tensors")


def _held(doc: Document, node: NodeConfig, place: Place, *, is_live: bool) -> Iterator[Problem]:
    """Report `hold` where no answer is streamed to the client, so that it is always whole."""
    for inside, inner in node.placed_nodes():
        reaches = is_live and not node.combines and (not node.steps or _is_last(node, inner))
        inner_place = (*place, *inside)
        if inside[0] == "cascade" and not is_live and getattr(inner, "hold", None) is not None:
            message = "has no effect: the answer of this step is not streamed to the client"
            yield doc.problem_with_key((*inner_place, "hold"), message)
        each = isinstance(inner, StepConfig) and inner.each
        yield from _held(doc, inner, inner_place, is_live=reaches and not each)


def _is_last(node: NodeConfig, step: NodeConfig) -> bool:
    """Whether the answer of a step is that of the sequence: it is the last one, apart from guards of answers."""
    producing = [each for each in node.steps if each.guard is None]
    return not node.out and bool(producing) and producing[-1] is step


def _failures(doc: Document, entry: Placed) -> Iterator[Problem]:
    """Report references to values that `on_error` does not give."""
    steps, out = entry.node.steps, entry.node.out
    by_name = {step.name: index for index, step in enumerate(steps)}
    placed = [((*entry.place, "out", name), reference) for name, reference in out.items()]
    for index, step in enumerate(steps):
        at = (*entry.place, "steps", index)
        placed += [((*at, *inside), reference) for inside, reference in step.references()]
    for place, reference in placed:
        name, _, output = reference.partition(".")
        use = steps[by_name[name]].on_error.use if name in by_name else None
        if use is not None and output not in use:
            message = f'the values in `on_error` of the step "{name}" have no "{output}"'
            yield doc.problem(place, message, closest(output, list(use)))
