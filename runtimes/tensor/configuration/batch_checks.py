"""Constraints on inputs that describe a batch, and on outputs that are cut by it."""

from __future__ import annotations

from collections.abc import Iterator

from config.problem import closest
from runtimes.tensor.configuration.complaint import Complaint
from runtimes.tensor.configuration.model_config import BatchInput, BatchOutput, ModelConfig


def check_batch_parts(config: ModelConfig) -> Iterator[Complaint]:
    """Every constraint that `batch_input` and `batch_output` violate."""
    for i, spec in enumerate(config.batch_inputs):
        yield from _source(config, spec, "batch_inputs", i)
    for i, output in enumerate(config.batch_outputs):
        yield from _source(config, output, "batch_outputs", i)
    for i, made in enumerate(config.batch_inputs):
        if made.datatype not in ("INT32", "FP32"):
            yield Complaint(("batch_inputs", i, "datatype"), "must be INT32 or FP32")
        for name in made.target_name:
            if config.input(name) is not None:
                yield Complaint(("batch_inputs", i, "target_name"), f"{name} is an input of clients too: rename one")
    names = [spec.name for spec in config.outputs]
    for i, cut in enumerate(config.batch_outputs):
        for name in cut.target_name:
            if names and name not in names:
                yield Complaint(
                    ("batch_outputs", i, "target_name"), "is not an output of the model", closest(name, names)
                )
    yield from _alone(config)


def _source(config: ModelConfig, spec: BatchInput | BatchOutput, kind: str, i: int) -> Iterator[Complaint]:
    names = [one.name for one in config.inputs]
    if len(spec.source_input) != 1:
        yield Complaint((kind, i, "source_input"), f"expected 1 input, and there are {len(spec.source_input)}")
    elif names and spec.source_input[0] not in names:
        suggestion = closest(spec.source_input[0], names)
        yield Complaint((kind, i, "source_input"), "is not an input of the model", suggestion)
    if not spec.target_name:
        yield Complaint((kind, i, "target_name"), "is required")


def _alone(config: ModelConfig) -> Iterator[Complaint]:
    """Parts that a described batch excludes."""
    if not config.batch_inputs and not config.batch_outputs:
        return
    place = ("batch_inputs" if config.batch_inputs else "batch_outputs",)
    if config.sequence_batching is not None or config.decoupled:
        yield Complaint(place, "describes a batch, which sequences and decoupled models do not have")
    if config.dynamic_batching is not None and config.dynamic_batching.allowed_batch_sizes:
        yield Complaint(place, "describes a batch, which allowed_batch_sizes pads: leave one of them out")
