"""The models of an ensemble's steps, and the checks of an ensemble against them.

Errors begin with Triton's sentences, and name the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from adapters.errors import InferenceError
from config.graph import predecessors
from config.problem import closest
from runtimes.tensor.configuration.ensemble_checks import graph_of, step_name
from runtimes.tensor.configuration.model_config import Dims, Ensemble, EnsembleStep, ModelConfig, TensorSpec
from runtimes.tensor.interfaces import ModelLoadError

Describe = Callable[[str, str], tuple[str, ModelConfig]]
"""The number and the configuration of a loaded model, by name and version. Raises `NotFound` or `Unavailable`."""


@dataclass(frozen=True, slots=True)
class Member:
    """One step, and the configuration of its model."""

    index: int
    step: EnsembleStep
    config: ModelConfig

    @property
    def name(self) -> str:
        return step_name(self.index, self.step)

    @property
    def batched(self) -> bool:
        return self.config.max_batch_size > 0


class _Tensor(NamedTuple):
    """A tensor of the ensemble as a model describes it."""

    owner: str
    batched: bool
    datatype: str
    dims: Dims

    @property
    def shape(self) -> Dims:
        return (-1, *self.dims) if self.batched else self.dims


def version_of(step: EnsembleStep) -> str:
    """The version in the form of requests; empty for the default version."""
    return "" if step.version < 1 else str(step.version)


def members_of(config: ModelConfig, describe: Describe) -> list[Member]:
    """The members of an ensemble. Raises `ModelLoadError` if one is not loaded."""
    assert config.ensemble is not None
    members = []
    for index, step in enumerate(config.ensemble.steps):
        try:
            _, member = describe(step.model, version_of(step))
        except InferenceError as error:
            needs = f"ensemble '{config.name}' depends on '{step.model}' in {step_name(index, step)}"
            raise ModelLoadError(f"{needs}, which has no loaded version: {error.message}") from None
        members.append(Member(index, step, member))
    return members


def completed(config: ModelConfig, describe: Describe) -> ModelConfig:
    """The configuration of an ensemble with all that its members decide.

    Raises `ModelLoadError` with every problem.
    """
    members = members_of(config, describe)
    problems = [*_mapping(config, members), *_consistency(config, members)]
    labels: Mapping[str, int] = {}
    if not problems:
        labels = decoupled_labels(config, members)
        problems = [*_mixed(config, members, labels)]
    if problems:
        raise ModelLoadError(f"in ensemble '{config.name}': {'; '.join(problems)}")
    return replace(config, decoupled=any(labels.values()))


def optional_inputs(members: list[Member]) -> frozenset[tuple[int, str]]:
    """Optional inputs of models, by step and name."""
    return frozenset((member.index, spec.name) for member in members for spec in member.config.inputs if spec.optional)


# ── names and sizes ───────────────────────────────────────────────────────────────────────────────────


def _mapping(config: ModelConfig, members: list[Member]) -> Iterator[str]:
    """Check that each mapped tensor of a model exists, each required tensor is mapped, and batches fit."""
    for member in members:
        step, model = member.step, member.config
        if member.batched and model.max_batch_size < config.max_batch_size:
            yield (
                f"ensemble allows maximum batch size {config.max_batch_size}, but it contains {member.name}, which"
                f" only allows maximum batch size {model.max_batch_size}"
            )
        inputs, outputs = [spec.name for spec in model.inputs], [spec.name for spec in model.outputs]
        for name, tensor in step.inputs.items():
            if name not in inputs:
                yield _unknown(
                    f"ensemble tensor {tensor} is mapping to non-existing input {name}", member, inputs, name
                )
        for spec in model.inputs:
            if spec.name not in step.inputs and not spec.optional:
                yield f"input {spec.name} of {member.name} is not mapped to any ensemble tensor"
        for name, tensor in step.outputs.items():
            if name not in outputs:
                text = f"ensemble tensor {tensor} is mapped from non-existing output {name}"
                yield _unknown(text, member, outputs, name)


def _unknown(text: str, member: Member, names: list[str], given: str) -> str:
    suggestion = closest(given, names)
    hint = f" (did you mean {suggestion}?)" if suggestion else f", which has {', '.join(names)}"
    return f"{text} of {member.name}{hint}"


# ── datatypes and shapes ──────────────────────────────────────────────────────────────────────────────


def _consistency(config: ModelConfig, members: list[Member]) -> Iterator[str]:
    """Check that all descriptions of a tensor agree."""
    first: dict[str, _Tensor] = {}
    for tensor, description in _descriptions(config, members):
        other = first.setdefault(tensor, description)
        prefix = f"ensemble tensor {tensor}: inconsistent"
        if other.datatype != description.datatype:
            yield (
                f"{prefix} data type: {other.datatype} is inferred from {other.owner} while {description.datatype} is"
                f" inferred from {description.owner}"
            )
        elif not _fits(other.dims, description.dims) and not _fits(other.shape, description.shape):
            yield (
                f"{prefix} shape: {_format(other.shape)} is inferred from {other.owner} while"
                f" {_format(description.shape)} is inferred from {description.owner}"
            )


def _descriptions(config: ModelConfig, members: list[Member]) -> Iterator[tuple[str, _Tensor]]:
    batched = config.max_batch_size > 0
    for spec in (*config.inputs, *config.outputs):
        yield spec.name, _Tensor("the ensemble", batched, spec.datatype, inner_dims(spec))
    for member in members:
        for specs, mapped in ((member.config.inputs, member.step.inputs), (member.config.outputs, member.step.outputs)):
            for spec in specs:
                if spec.name in mapped:
                    yield mapped[spec.name], _Tensor(member.name, member.batched, spec.datatype, spec.dims)


def inner_dims(spec: TensorSpec) -> Dims:
    """The dimensions of an ensemble's tensor as its steps see it."""
    return spec.dims if spec.reshape is None else spec.reshape


def _fits(one: Dims, other: Dims) -> bool:
    return len(one) == len(other) and all(a == b or -1 in (a, b) for a, b in zip(one, other, strict=True))


def _format(dims: Dims) -> str:
    return f"[{','.join(map(str, dims))}]"


# ── decoupled models ──────────────────────────────────────────────────────────────────────────────────


def decoupled_labels(config: ModelConfig, members: list[Member]) -> dict[str, int]:
    """By tensor: the decoupled step whose responses it belongs to, plus one; 0 if each request has one.

    A step with inputs of several labels has the highest one.
    """
    assert config.ensemble is not None
    labels = {spec.name: 0 for spec in config.inputs}
    for index in order_of(config.ensemble):
        member = members[index]
        label = max(labels[tensor] for tensor in member.step.inputs.values())
        if member.config.decoupled:
            label = index + 1
        labels.update(dict.fromkeys(member.step.outputs.values(), label))
    return labels


def order_of(ensemble: Ensemble) -> list[int]:
    """The steps, each after those that it depends on."""
    edges = predecessors(graph_of(ensemble))
    ordered: dict[str, None] = {}
    while len(ordered) < len(edges):
        ordered.update({name: None for name, before in edges.items() if all(one in ordered for one in before)})
    return [int(name) for name in ordered]


def _mixed(config: ModelConfig, members: list[Member], labels: Mapping[str, int]) -> Iterator[str]:
    """Steps and outputs that would join tensors of different decoupled models."""
    for member in members:
        if len({labels[tensor] for tensor in member.step.inputs.values()}) > 1:
            yield f"{member.name} receives inputs originated from different decoupled models"
    if len({labels[spec.name] for spec in config.outputs}) > 1:
        yield "the outputs of the ensemble originate from different decoupled models"
