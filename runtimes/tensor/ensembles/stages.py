"""The steps that some outputs of an ensemble need, prepared for its requests, and the tensors between them.

Decoupled models divide the steps into stages: a stage runs once for each response of the decoupled step before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from adapters.dataflow import Dataflow, Plan
from adapters.tensors import NO_PARAMETERS, RequestedOutput, Tensor
from config.graph import GraphStep
from runtimes.tensor.configuration.ensemble_checks import graph_of
from runtimes.tensor.configuration.model_config import Dims, ModelConfig, TensorSpec
from runtimes.tensor.instances.runner import reshaped
from runtimes.tensor.models.members import Member, decoupled_labels, inner_dims, optional_inputs, version_of
from runtimes.tensor.text_index import IndexedTensor

Reshape = Callable[[Dims], Dims]
"""The shape that the receiver expects, from the shape that the sender gave."""


def passed(tensor: Tensor, name: str, reshape: Reshape | None) -> Tensor:
    """The tensor with its receiver's name and shape. Its bytes are shared."""
    shape = tensor.shape if reshape is None else reshape(tensor.shape)
    if tensor.name == name and shape == tensor.shape:
        return tensor
    if isinstance(tensor, IndexedTensor):  # the ends of its rows stay right if its rows stay the same
        return replace(tensor, name=name, shape=shape, ends=tensor.ends if shape[:1] == tensor.shape[:1] else None)
    return Tensor(name, tensor.datatype, shape, tensor.data, NO_PARAMETERS)


def between(sender_batched: bool, receiver_batched: bool, dims: Dims) -> Reshape | None:
    """The conversion between a model with a batch dimension and a model without, as in Triton.

    `dims` are the receiver's, without the batch.
    """
    if sender_batched == receiver_batched:
        return None
    return (lambda shape: _with_batch(shape, dims)) if receiver_batched else (lambda shape: _without_batch(shape, dims))


def _with_batch(shape: Dims, dims: Dims) -> Dims:
    """A batch of one, unless the sender's first dimension is the batch already."""
    return (1, *shape) if _fits(shape, dims) else shape


def _without_batch(shape: Dims, dims: Dims) -> Dims:
    """The row of a batch of one, unless the receiver takes the batch as its first dimension."""
    return shape[1:] if not _fits(shape, dims) and shape[:1] == (1,) else shape


def _fits(shape: Dims, dims: Dims) -> bool:
    return len(shape) == len(dims) and all(dim in (-1, size) for size, dim in zip(shape, dims, strict=True))


def of_ensemble(batched: bool, dims: Dims, target: Dims) -> Reshape:
    """The `reshape` of an ensemble's input or output: from `dims` to `target`, behind the batch."""
    lead = int(batched)
    return lambda shape: shape[:lead] + reshaped(shape[lead:], dims, target)


@dataclass(frozen=True, slots=True)
class PreparedStep:
    """One step. Inputs and outputs are pairs of the model's name and the ensemble's."""

    index: int
    name: str
    """The name of the step in messages."""
    model: str
    version: str
    inputs: tuple[tuple[str, str, Reshape | None], ...]
    outputs: tuple[tuple[str, str], ...]
    requested: tuple[RequestedOutput, ...]
    """Empty if all outputs of the model are mapped."""


@dataclass(frozen=True, slots=True)
class EnsembleStage:
    """Steps with one response to each request, and the decoupled step that they lead to, if any."""

    plan: Plan
    source: PreparedStep | None


@dataclass(frozen=True, slots=True)
class StagePlan:
    """All that a request for some outputs needs."""

    stages: tuple[EnsembleStage, ...]
    steps: tuple[PreparedStep, ...]
    """All steps of all stages."""


class Stages:
    """The steps of an ensemble."""

    def __init__(self, config: ModelConfig, members: list[Member]) -> None:
        assert config.ensemble is not None
        self._config = config
        self._batched_by: dict[str, bool] = {spec.name: config.max_batch_size > 0 for spec in config.inputs}
        for member in members:
            self._batched_by.update(dict.fromkeys(member.step.outputs.values(), member.batched))
        self.prepared = {str(member.index): self._prepare(member) for member in members}
        """Prepared steps by their name in the graph."""
        self._graph = graph_of(config.ensemble, optional_inputs(members))
        self._decoupled = {str(member.index) for member in members if member.config.decoupled}
        self._labels = decoupled_labels(config, members)
        self._flows: dict[int, Dataflow] = {}
        for label in set(self._labels.values()):
            self._flows[label] = Dataflow(step for step in self._graph if self._belongs(step, label))

    def plan(self, outputs: Iterable[str]) -> StagePlan:
        """The stages that these outputs need."""
        stages: list[EnsembleStage] = []
        values: frozenset[str] = frozenset(outputs)
        source: PreparedStep | None = None
        label = max((self._labels[value] for value in values), default=0)
        while True:
            stages.insert(0, EnsembleStage(self._flows[label].plan(values), source))
            if not label:
                break
            source = self.prepared[str(label - 1)]
            values = frozenset(tensor for _, tensor, _ in source.inputs)
            label = max(self._labels[value] for value in values)
        steps = [self.prepared[step.name] for stage in stages for step in stage.plan.steps]
        sources = [stage.source for stage in stages if stage.source is not None]
        return StagePlan(tuple(stages), (*steps, *sources))

    def _belongs(self, step: GraphStep, label: int) -> bool:
        return step.name not in self._decoupled and self._labels[step.outputs[0]] == label

    def _prepare(self, member: Member) -> PreparedStep:
        step = member.step
        outputs = tuple(step.outputs.items())
        specs = {spec.name: spec for spec in member.config.inputs}
        inputs = tuple(
            (name, tensor, self._reshape(specs[name], tensor, member)) for name, tensor in step.inputs.items()
        )
        everything = {name for name, _ in outputs} == {spec.name for spec in member.config.outputs}
        requested = () if everything else tuple(RequestedOutput(name) for name, _ in outputs)
        return PreparedStep(member.index, member.name, step.model, version_of(step), inputs, outputs, requested)

    def _reshape(self, spec: TensorSpec, tensor: str, member: Member) -> Reshape | None:
        return between(self._batched_by[tensor], member.batched, spec.dims)

    # ── the ensemble's own tensors ────────────────────────────────────────────────────────────────────

    def of_inputs(self) -> Mapping[str, Reshape]:
        """Conversions of the ensemble's inputs that have a `reshape`."""
        batched = self._config.max_batch_size > 0
        return {
            spec.name: of_ensemble(batched, spec.dims, spec.reshape)
            for spec in self._config.inputs
            if spec.reshape is not None
        }

    def of_outputs(self) -> Mapping[str, Reshape]:
        """Conversions of the ensemble's outputs that have a `reshape`, or another batching than their step."""
        batched = self._config.max_batch_size > 0
        conversions: dict[str, Reshape] = {}
        for spec in self._config.outputs:
            steps: list[Reshape] = []
            if (convert := between(self._batched_by[spec.name], batched, inner_dims(spec))) is not None:
                steps.append(convert)
            if spec.reshape is not None:
                steps.append(of_ensemble(batched, spec.reshape, spec.dims))
            if steps:
                conversions[spec.name] = _chained(steps)
        return conversions


def _chained(steps: list[Reshape]) -> Reshape:
    if len(steps) == 1:
        return steps[0]
    first, second = steps
    return lambda shape: second(first(shape))
