"""The values that the parts of a pipeline produce, with their types, and the steps to which its parts refer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from config.expressions import BOOL, FLOAT, JSON, STRING, NumberType, StringType, TensorType, Variable, Variables
from config.expressions.parser import names
from config.expressions.types import JsonType
from config.schema.pipelines.call import CallConfig
from config.schema.pipelines.leaves import DecodeConfig, DetokenizeConfig, RerankConfig, TemplateConfig, TokenizeConfig
from config.schema.pipelines.parts import LeafConfig, PipelineTensorConfig
from config.schema.pipelines.pipeline import (
    AgreeConfig,
    DraftsConfig,
    NodeConfig,
    PipelineConfig,
    StageConfig,
    StepConfig,
)

TakesTensors = Callable[[str], bool]
"""Whether the model of a name takes tensors, rather than chats."""
Path = tuple[str, ...]

REQUEST = "request"
FINISH = ("stop", "length", "tool_calls", "content_filter", "other")
"""The reasons for the end of a generated text. `other` stands for those of single servers."""
LOGPROBS = ("min", "mean", "p01", "p05", "p10", "p25", "p50", "p75", "p90", "p95", "p99")
"""Minimum, mean and percentiles of the log-probabilities of an answer's tokens."""
_COUNT = NumberType(integer=True, low=0)
_ANY_TENSOR = TensorType()
_UNDECLARED = Variable(_ANY_TENSOR, undeclared=True)


@dataclass(frozen=True, slots=True)
class NodeOutputs:
    """The outputs of a node. `is_open`: it may have outputs beside those declared, each a tensor."""

    declared: Mapping[Path, Variable]
    is_open: bool = False


GENERATED = NodeOutputs(
    {
        ("text",): Variable(STRING),
        ("finish",): Variable(StringType(FINISH)),
        ("refusal",): Variable(BOOL),
        ("tokens",): Variable(_COUNT),
        ("tool_calls",): Variable(_COUNT),
        ("length", "characters"): Variable(_COUNT),
        ("length", "tokens"): Variable(_COUNT),
        **{("logprob", name): Variable(NumberType(integer=False, high=0)) for name in LOGPROBS},
    }
)
"""The outputs of a chat or a completion. Log-probabilities are absent if the server reports none."""
TENSORS = NodeOutputs({}, is_open=True)
"""The outputs of a model of tensors, which only its server declares."""
NOTHING = NodeOutputs({})
_CHAT: Mapping[Path, Variable] = {
    ("text",): Variable(STRING),
    ("model",): Variable(STRING),
    ("prompt_tokens",): Variable(_COUNT),
    ("stream",): Variable(BOOL),
    ("n",): Variable(_COUNT),
    ("user",): Variable(STRING, optional=True),
    ("max_tokens",): Variable(_COUNT, optional=True),
    ("temperature",): Variable(FLOAT, optional=True),
}


def outputs_of(node: NodeConfig, takes_tensors: TakesTensors) -> NodeOutputs:
    """The outputs of a node."""
    if isinstance(node, StepConfig) and node.each:
        declared = _of_kind(node, takes_tensors).declared
        return NodeOutputs({path: Variable(_of_rows(declared[path].type)) for path in declared}, is_open=True)
    return _of_kind(node, takes_tensors)


def _of_rows(type_: object) -> TensorType | JsonType:
    """The type of a value that is gathered from rows: tensors are joined, other values become a list."""
    return _ANY_TENSOR if isinstance(type_, TensorType) else JSON


def _of_kind(node: NodeConfig, takes_tensors: TakesTensors) -> NodeOutputs:
    for _, leaf in node.placed_leaves():
        return _of_leaf(leaf)
    if node.model is not None:
        return TENSORS if takes_tensors(node.model) else GENERATED
    for _, section in node.placed_drafts():
        return _of_drafts(section, takes_tensors)
    if not node.out:
        inner = node.answering()
        return NOTHING if inner is None else outputs_of(inner, takes_tensors)
    steps = {step.name: outputs_of(step, takes_tensors) for step in node.steps}
    declared: dict[Path, Variable] = {}
    for name, reference in node.out.items():
        step, _, field = reference.partition(".")
        variable = steps[step].declared.get(tuple(field.split("."))) if step in steps else None
        is_tensor = step in steps and steps[step].is_open
        declared[(name,)] = variable or Variable(_ANY_TENSOR if is_tensor else JSON)
    return NodeOutputs(declared)


def _of_leaf(leaf: LeafConfig) -> NodeOutputs:
    if isinstance(leaf, TemplateConfig):
        return NodeOutputs({("text",): Variable(STRING)} if leaf.text is not None else {("messages",): Variable(JSON)})
    if isinstance(leaf, DetokenizeConfig):
        return NodeOutputs({("text",): Variable(JSON)})
    if isinstance(leaf, RerankConfig):
        return NodeOutputs({(name,): Variable(JSON) for name in ("candidates", "scores", "places")})
    if isinstance(leaf, TokenizeConfig):
        tokens = Variable(TensorType("INT64", (None, None)))
        return NodeOutputs({(name,): tokens for name in ("ids", "mask", "types", "count")})
    if isinstance(leaf, CallConfig) and leaf.file is not None:
        return NodeOutputs(_of_tensors(leaf.outputs))
    if isinstance(leaf, DecodeConfig | CallConfig):
        return TENSORS
    return NOTHING


def _of_drafts(section: DraftsConfig, takes_tensors: TakesTensors) -> NodeOutputs:
    """The outputs that every draft has, since any of them may be the answer; and the agreement."""
    first, *others = [outputs_of(draft, takes_tensors) for draft in section.of]
    shared = {path: each for path, each in first.declared.items() if all(path in one.declared for one in others)}
    if isinstance(section, AgreeConfig):
        shared[("agreement",)] = Variable(NumberType(integer=False, low=0, high=1))
    return NodeOutputs(shared)


def _of_tensors(tensors: Iterable[PipelineTensorConfig]) -> dict[Path, Variable]:
    declared: dict[Path, Variable] = {}
    for tensor in tensors:
        shape = tuple(None if size < 0 else size for size in tensor.shape)
        declared[(tensor.name,)] = Variable(TensorType(tensor.datatype, shape))
    return declared


def request_of(pipeline: PipelineConfig, takes_tensors: TakesTensors) -> NodeOutputs:
    """The values of a client's request: declared inputs, any tensors, or the fields of a chat."""
    if pipeline.inputs:
        return NodeOutputs(_of_tensors(pipeline.inputs))
    return TENSORS if all(map(takes_tensors, pipeline.typed_models())) else NodeOutputs(_CHAT, is_open=True)


def own_values(node: NodeConfig, takes_tensors: TakesTensors) -> NodeOutputs:
    """The values that the node's own conditions read without the name of a step."""
    if node.guard is not None:
        return TENSORS if takes_tensors(node.guard.model) else GENERATED
    return outputs_of(node, takes_tensors) if isinstance(node, StageConfig) else NOTHING


def variables(request: NodeOutputs, steps: Mapping[str, NodeOutputs], own: NodeOutputs = NOTHING) -> Variables:
    """The variables of a condition: the request, the steps that it may refer to, and the node's own values."""
    declared: dict[Path, Variable] = dict(own.declared)
    opened: dict[Path, Variable] = {(): _UNDECLARED} if own.is_open else {}
    for name, outputs in ((REQUEST, request), *steps.items()):
        declared |= {(name, *path): variable for path, variable in outputs.declared.items()}
        if outputs.is_open:
            is_chat = name == REQUEST and bool(outputs.declared)
            opened[(name,)] = Variable(JSON, optional=True) if is_chat else _UNDECLARED
    return Variables(declared, opened)


def references(node: NodeConfig) -> frozenset[str]:
    """The steps outside of a node to which it refers: itself, in its conditions, and in all of its inner nodes.

    A name in a condition may also be an output of the node's own model, so a name that no step has is not an error.
    """
    referenced = set(steps_of(node.out.values()))
    referenced.update(steps_of(reference for _, reference in node.references()))
    referenced.update(path[0] for _, text in node.conditions() for path in names(text) if path[0] != REQUEST)
    for inner in node.nodes():
        referenced |= references(inner)
    return frozenset(referenced - {step.name for step in node.steps})


def needs(steps: Sequence[StepConfig]) -> list[frozenset[str]]:
    """For each step of a sequence, the others that it waits for: those to which it refers, and the guards before it.

    A guard of the answer waits for its subject: the last step before it that is not a guard of the request.
    """
    names = {step.name for step in steps}
    needed, gates, subject = [], set[str](), ""
    for step in steps:
        own = (references(step) & names) | gates
        if step.guard is not None and step.guard.on == "request":
            gates.add(step.name)
        else:
            own |= {subject} if step.guard is not None and subject else set()
            subject = step.name
        needed.append(frozenset(own))
    return needed


def steps_of(written: Iterable[str]) -> Iterator[str]:
    """The steps of references."""
    return (name for reference in written if (name := reference.partition(".")[0]) != REQUEST)
