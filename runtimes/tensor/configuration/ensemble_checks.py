"""Constraints on the configuration of an ensemble alone. Those that depend on its members are `ensembles.members`'."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from config.graph import GraphStep, cycle, predecessors
from config.place import Place
from config.problem import closest
from runtimes.tensor.configuration.complaint import Complaint
from runtimes.tensor.configuration.model_config import ENSEMBLE, Ensemble, EnsembleStep, ModelConfig

_NOT_FOR_ENSEMBLES: Final = (
    "dynamic_batching", "sequence_batching", "instance_groups", "warmup", "quantize", "execution_timeout",
    "memory_bytes", "default_model_filename",
)  # fmt: skip
_OF_PROCESSES: Final = frozenset({"execution_timeout", "memory_bytes"})
"""Fields of an ensemble with its own processes."""
_HERE: Final = ("ensemble", "steps")


def step_name(index: int, step: EnsembleStep) -> str:
    """The name of a step in messages. Steps have numbers from 0, as in Triton."""
    return f"step {index} (`{step.model}`)"


def graph_of(ensemble: Ensemble, optional: frozenset[tuple[int, str]] = frozenset()) -> list[GraphStep]:
    """The steps of an ensemble as those of a graph. `optional` has inputs that may be absent, by step and name."""
    steps = []
    for index, step in enumerate(ensemble.steps):
        needs = tuple(dict.fromkeys(value for name, value in step.inputs.items() if (index, name) not in optional))
        may = {value for name, value in step.inputs.items() if (index, name) in optional}
        outputs = tuple(dict.fromkeys(step.outputs.values()))
        steps.append(GraphStep(str(index), needs, outputs, tuple(sorted(may.difference(needs)))))
    return steps


def check_ensemble(config: ModelConfig) -> Iterator[Complaint]:
    """Every constraint that the configuration of an ensemble violates; nothing for other models."""
    ensemble = config.ensemble
    if ensemble is None:
        if ENSEMBLE in (config.platform, config.backend):
            yield Complaint(("ensemble",), "is required: it has the steps of the ensemble")
        if config.processes:
            yield Complaint(("processes",), "is for an ensemble: write instances for another model")
        return
    if config.platform not in ("", ENSEMBLE):
        yield Complaint(("platform",), f"of an ensemble must be {ENSEMBLE}")
    if config.backend not in ("", ENSEMBLE):
        yield Complaint(("backend",), "is not for an ensemble: its steps have backends of their own")
    plain = ModelConfig(config.name)
    for field in _NOT_FOR_ENSEMBLES:
        if getattr(config, field) != getattr(plain, field) and not (config.processes and field in _OF_PROCESSES):
            yield Complaint((field,), "is not for an ensemble: configure it at the models of its steps")
    if config.processes and ensemble.max_inflight_requests:
        yield Complaint(("processes",), "bounds the requests that are computed: leave max_inflight_requests out")
    if not ensemble.steps:
        yield Complaint(_HERE, "is required: an ensemble has at least one step")
        return
    complaints = [*_tensors(config, ensemble), *_io(config, ensemble)]
    yield from complaints
    if not complaints:
        yield from _flow(ensemble)


def _tensors(config: ModelConfig, ensemble: Ensemble) -> Iterator[Complaint]:
    """Check that each step has inputs and outputs, and each tensor one producer."""
    producers: dict[str, str] = {spec.name: "an input of the ensemble" for spec in config.inputs}
    for index, step in enumerate(ensemble.steps):
        name = step_name(index, step)
        for field, tensors in (("inputs", step.inputs), ("outputs", step.outputs)):
            if not tensors:
                yield Complaint((*_HERE, index, field), f"{name} has no {field}: map at least one")
        for output, tensor in step.outputs.items():
            place: Place = (*_HERE, index, "outputs", output)
            if tensor in producers:
                yield Complaint(place, f"{name} writes tensor `{tensor}`, which is {producers[tensor]} already")
            producers.setdefault(tensor, f"an output of {name}")


def _io(config: ModelConfig, ensemble: Ensemble) -> Iterator[Complaint]:
    """Check that inputs of the ensemble are read, outputs are written, and every tensor is used."""
    read = {tensor for step in ensemble.steps for tensor in step.inputs.values()}
    written = {tensor for step in ensemble.steps for tensor in step.outputs.values()}
    for i, spec in enumerate(config.inputs):
        if spec.name not in read:
            message = f"ensemble input `{spec.name}` is not used: no step reads it"
            yield Complaint(("inputs", i, "name"), message, closest(spec.name, read))
    for i, spec in enumerate(config.outputs):
        if spec.name not in written:
            message = f"ensemble output `{spec.name}` is not written by any step"
            yield Complaint(("outputs", i, "name"), message, closest(spec.name, written))
    given = {spec.name for spec in config.inputs}
    results = {spec.name for spec in config.outputs}
    for index, step in enumerate(ensemble.steps):
        for name, tensor in step.inputs.items():
            if tensor not in given | written:
                message = f"{step_name(index, step)} reads tensor `{tensor}`, which is no input of the ensemble and"
                place: Place = (*_HERE, index, "inputs", name)
                yield Complaint(place, f"{message} no output of a step", closest(tensor, given | written))
        for name, tensor in step.outputs.items():
            if tensor not in read | results:
                message = f"tensor `{tensor}` of {step_name(index, step)} is unused: no step and no output reads it"
                yield Complaint((*_HERE, index, "outputs", name), message)


def _flow(ensemble: Ensemble) -> Iterator[Complaint]:
    """Check that no step waits for itself."""
    if circle := [int(name) for name in cycle(predecessors(graph_of(ensemble)))]:
        names = " → ".join(step_name(index, ensemble.steps[index]) for index in (*circle, circle[0]))
        yield Complaint((*_HERE, circle[0]), f"can never start, because it is part of a cycle: {names}")
