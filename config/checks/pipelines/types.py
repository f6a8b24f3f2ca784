"""Finds tensors that do not fit, as far as the file declares them, and conditions that are invalid or never change."""

from collections.abc import Iterator, Mapping

from pydantic import ValidationError

from config.checks.pipelines.walk import Placed, PlacedPipeline, model_names, model_of, nodes, pipelines, takes_tensors
from config.document import Document, Node
from config.expressions import BOOL, MISSING, CompileError, Variables, compile_expression
from config.place import Place
from config.problem import Problem, closest
from config.schema.pipelines.outputs import REQUEST, TakesTensors, outputs_of, own_values, request_of, variables
from config.schema.pipelines.parts import PipelineTensorConfig
from config.schema.pipelines.pipeline import EnsembleConfig, NodeConfig, PipelineConfig, StepConfig
from config.schema.route import SignatureConfig


def check_conditions(doc: Document, root: Node) -> Iterator[Problem]:
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


Tensors = Mapping[str, PipelineTensorConfig]
"""Declared tensors by name."""
FLOATS = ("FP16", "FP32", "FP64", "BF16")


def check(doc: Document, root: Node) -> Iterator[Problem]:
    """Report inputs and outputs that models do not have, other datatypes, other shapes, and means of integers."""
    types = DeclaredTypes(root)
    for pipeline in pipelines(root):
        for entry in nodes(pipeline):
            if isinstance(entry.node, StepConfig) and entry.node.inputs:
                yield from _inputs(doc, entry, entry.node, types)
            for name, reference in entry.node.out.items():
                steps = (*entry.visible, *entry.node.steps)
                yield from _output(doc, (*entry.place, "out", name), reference, steps, types)
            if entry.node.ensemble is not None:
                yield from _ensemble(doc, entry, entry.node.ensemble, types)


def unchecked(doc: Document, root: Node) -> Iterator[Problem]:
    """The inputs of steps whose datatype or shape the file does not declare."""
    types = DeclaredTypes(root)
    for pipeline in pipelines(root):
        for entry in nodes(pipeline):
            step = entry.node
            if not isinstance(step, StepConfig) or not types.has_tensors(step):
                continue
            declared = types.inputs_of(step)
            for name, reference in step.inputs.items():
                place = (*entry.place, "in", name)
                if declared is None:
                    yield doc.problem(place, f'not checked: the model "{step.model}" has no `signature`')
                elif types.of_reference(pipeline, reference, entry.visible) is None:
                    yield doc.problem(place, f"not checked: the type of {reference} is not declared")


class DeclaredTypes:
    """The tensors that the file declares: signatures of models, and inputs and outputs of pipelines."""

    def __init__(self, root: Node) -> None:
        self.takes_tensors = takes_tensors(root)
        self._names = model_names(root)
        self._pipelines = {pipeline.model: pipeline for pipeline in pipelines(root)}
        self._signatures = dict(_signatures(root))

    def inputs(self, model: str) -> Tensors | None:
        """The inputs of a model; None if they are not declared."""
        return self._declared(model, "inputs")

    def outputs(self, model: str) -> Tensors | None:
        """The outputs of a model; None if they are not declared."""
        return self._declared(model, "outputs")

    def _declared(self, model: str, side: str) -> Tensors | None:
        own = model_of(model, self._names) or ""
        pipeline = self._pipelines.get(own)
        section = pipeline.config if pipeline is not None else self._signatures.get(own)
        tensors: tuple[PipelineTensorConfig, ...] = getattr(section, side, ())
        return _by_name(tensors) or None

    def has_tensors(self, node: NodeConfig) -> bool:
        """Whether a node sends its inputs as tensors to a model or to a function."""
        return bool(node.call and node.call.file) or (node.model is not None and self.takes_tensors(node.model))

    def inputs_of(self, node: NodeConfig) -> Tensors | None:
        """The inputs of the node's model or function; None if they are not declared."""
        if node.call is not None and node.call.file is not None:
            return _by_name(node.call.inputs)
        return None if node.model is None else self.inputs(node.model)

    def of_node(self, node: NodeConfig) -> Tensors | None:
        """The outputs of a node; None if they are not declared."""
        if isinstance(node, StepConfig) and (node.each or node.explain):
            return None  # the gathered shape depends on the rows, and that of an explanation on the model's features
        if node.call is not None and node.call.file is not None:
            return _by_name(node.call.outputs)
        if node.model is not None:
            return self.outputs(node.model)
        inner = node.answering()
        return self.of_node(inner) if inner is not None and not node.out else None

    def of_reference(
        self, pipeline: PlacedPipeline, reference: str, steps: tuple[StepConfig, ...]
    ) -> PipelineTensorConfig | None:
        """The type of a referenced value; None if it is not declared."""
        name, _, output = reference.partition(".")
        if name == REQUEST:
            return next((tensor for tensor in pipeline.config.inputs if tensor.name == output), None)
        step = next((step for step in steps if step.name == name), None)
        return None if step is None else (self.of_node(step) or {}).get(output)

    def of_output(self, reference: str, steps: tuple[StepConfig, ...]) -> tuple[str, Tensors | None]:
        """The output that a reference names, and the declared outputs of its step."""
        name, _, output = reference.partition(".")
        step = next((step for step in steps if step.name == name), None)
        return output, None if step is None else self.of_node(step)


def _by_name(tensors: tuple[PipelineTensorConfig, ...]) -> Tensors:
    return {tensor.name: tensor for tensor in tensors}


def _receiver(step: StepConfig) -> str:
    """The receiver of a step's inputs, for messages."""
    return f'the model "{step.model}"' if step.call is None else f"the function `{step.call.function}`"


def _signatures(root: Node) -> Iterator[tuple[str, SignatureConfig]]:
    for model in root["models"]:
        name, section = model["name"].text, model["signature"]
        if name is not None and section.value is not None:
            try:
                yield name, SignatureConfig.model_validate(section.value, strict=True)
            except ValidationError:
                continue


def _inputs(doc: Document, entry: Placed, step: StepConfig, types: DeclaredTypes) -> Iterator[Problem]:
    declared = types.inputs_of(step)
    for name, reference in step.inputs.items():
        place = (*entry.place, "in", name)
        yield from _output(doc, place, reference, entry.visible, types)
        output, outputs = types.of_output(reference, entry.visible)
        if declared is None:
            continue
        if name not in declared:
            yield doc.problem_with_key(place, f"{_receiver(step)} has no such input", closest(name, declared))
        elif outputs is not None and output in outputs:
            yield from _fits(doc, place, outputs[output], declared[name], each=step.each)
    missing = [] if declared is None else [name for name in declared if name not in step.inputs]
    if missing:
        message = f"leaves out {', '.join(missing)}, which {_receiver(step)} needs"
        yield doc.problem((*entry.place, "in"), message)


def _output(
    doc: Document, place: Place, reference: str, steps: tuple[StepConfig, ...], types: DeclaredTypes
) -> Iterator[Problem]:
    output, outputs = types.of_output(reference, steps)
    if outputs is not None and output not in outputs:
        step = reference.partition(".")[0]
        yield doc.problem(place, f'the step "{step}" has no output "{output}"', closest(output, outputs))


def _fits(
    doc: Document, place: Place, given: PipelineTensorConfig, needed: PipelineTensorConfig, *, each: bool
) -> Iterator[Problem]:
    """Report another datatype or shape than the input has. With `each` the input receives one row."""
    if given.datatype != needed.datatype:
        yield doc.problem(place, f"is {given.datatype}, and the input is {needed.datatype}")
    shape = (1, *given.shape[1:]) if each else given.shape
    sizes = zip(shape, needed.shape, strict=False)
    if len(shape) != len(needed.shape) or any(-1 not in pair and pair[0] != pair[1] for pair in sizes):
        yield doc.problem(place, f"has the shape {list(shape)}, and the input has {list(needed.shape)}")


def _ensemble(doc: Document, entry: Placed, config: EnsembleConfig, types: DeclaredTypes) -> Iterator[Problem]:
    """Report members whose outputs cannot be combined."""
    first: Mapping[str, tuple[str, PipelineTensorConfig]] = {}
    for index, member in enumerate(config.members):
        outputs = types.of_node(member)
        place = (*entry.place, "ensemble", "members", index)
        for name, tensor in (outputs or {}).items():
            if config.combine == "mean" and tensor.datatype not in FLOATS:
                yield doc.problem(place, f"a mean needs floating-point outputs, and `{name}` is {tensor.datatype}")
            other = first.get(name)
            if other is not None and config.combine != "first" and other[1].datatype != tensor.datatype:
                message = f"`{name}` is {tensor.datatype}, and that of {other[0]} is {other[1].datatype}"
                yield doc.problem(place, message)
        first = {**{name: (member.label, tensor) for name, tensor in (outputs or {}).items()}, **first}
    models = [model for member in config.members if (model := member.answering_model()) is not None]
    if config.combine == "mean" and any(not types.takes_tensors(model) for model in models):
        place = (*entry.place, "ensemble", "combine")
        yield doc.problem(place, "a mean needs models of tensors: texts vote, or are joined by concat")
    if config.need is not None and config.need > len(config.members):
        place = (*entry.place, "ensemble", "need")
        yield doc.problem(place, f"needs {config.need} answers, and there are {len(config.members)} members")
