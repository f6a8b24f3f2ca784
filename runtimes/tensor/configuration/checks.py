"""What must hold in a model's configuration, whichever file it was written in.

Places are those of `ModelConfig`'s own fields; a reader turns them into what its file calls them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod
from pathlib import PurePosixPath
from typing import NamedTuple

from adapters.tensors import DATATYPES
from config.place import Place
from config.problem import closest
from runtimes.tensor.configuration.model_config import (
    Dims,
    DynamicBatching,
    InstanceGroup,
    ModelConfig,
    QueuePolicy,
    SequenceBatching,
    TensorSpec,
    Warmup,
)

MAX_INSTANCES = 256
MAX_BATCH = 1 << 16
_CONTROL_TYPES = {
    "start": {"INT32", "FP32", "BOOL"},
    "ready": {"INT32", "FP32", "BOOL"},
    "end": {"INT32", "FP32", "BOOL"},
    "corrid": {"UINT64", "INT64", "UINT32", "INT32", "BYTES"},
}


class Complaint(NamedTuple):
    """What is wrong at a place, and what to change."""

    place: Place
    message: str
    suggestion: str | None = None


def check(config: ModelConfig) -> Iterator[Complaint]:
    """Everything that does not hold."""
    if not 0 <= config.max_batch_size <= MAX_BATCH:
        yield Complaint(("max_batch_size",), f"must be between 0 (no batch dimension) and {MAX_BATCH}")
        return
    yield from _tensors(config, "inputs", config.inputs)
    yield from _tensors(config, "outputs", config.outputs)
    yield from _versions(config)
    yield from _file(config.default_model_filename, ("default_model_filename",))
    if config.dynamic_batching is not None:
        yield from _dynamic(config, config.dynamic_batching)
    if config.sequence_batching is not None:
        yield from _sequences(config, config.sequence_batching)
    for i, group in enumerate(config.instance_groups):
        yield from _instances(group, ("instance_groups", i))
    for i, warmup in enumerate(config.warmup):
        yield from _warmup(config, warmup, ("warmup", i))
    yield from _together(config)


def _tensors(config: ModelConfig, kind: str, specs: Sequence[TensorSpec]) -> Iterator[Complaint]:
    yield from _repeated((spec.name for spec in specs), lambda i: (kind, i, "name"))
    for i, spec in enumerate(specs):
        if not spec.name:
            yield Complaint((kind, i, "name"), "is required")
        yield from _datatype(spec.datatype, (kind, i, "datatype"))
        yield from _dims(spec.dims, (kind, i, "dims"))
        if spec.reshape is not None:
            yield from _reshape(spec, (kind, i, "reshape"))
        if spec.layout and len(spec.dims) != 3:
            yield Complaint((kind, i, "layout"), "is an image's: dims are three, without the batch")


def _datatype(datatype: str, place: Place) -> Iterator[Complaint]:
    if datatype not in DATATYPES:
        near = closest(datatype, DATATYPES)
        yield Complaint(place, f"expected a datatype: {', '.join(sorted(DATATYPES))}", near)


def _dims(dims: Dims, place: Place) -> Iterator[Complaint]:
    if any(dim != -1 and dim < 1 for dim in dims):
        yield Complaint(place, "each must be a length from 1 up, or -1 for any")


def _reshape(spec: TensorSpec, place: Place) -> Iterator[Complaint]:
    assert spec.reshape is not None
    yield from _dims(spec.reshape, place)
    variable = spec.dims.count(-1), spec.reshape.count(-1)
    if variable[0] != variable[1]:
        yield Complaint(place, "must have as many dimensions of any length as dims has")
    elif not variable[0] and prod(spec.dims) != prod(spec.reshape):
        yield Complaint(place, f"holds {prod(spec.reshape)} elements where dims hold {prod(spec.dims)}")


def _versions(config: ModelConfig) -> Iterator[Complaint]:
    policy = config.version_policy
    if policy.kind == "latest" and policy.latest < 1:
        yield Complaint(("version_policy",), "serves no version: latest is at least 1")
    if policy.kind == "specific" and (not policy.versions or min(policy.versions) < 1):
        yield Complaint(("version_policy",), "expected the numbers of versions, from 1")
    for label, version in config.version_labels.items():
        if not label or label.isdigit() or not label.replace("-", "").replace("_", "").replace(".", "").isalnum():
            yield Complaint(("version_labels",), "a label is a word such as stable, which is no number")
        if version < 1:
            yield Complaint(("version_labels", label), "expected the number of a version, from 1")


def _file(name: str, place: Place) -> Iterator[Complaint]:
    path = PurePosixPath(name)
    if name and (path.is_absolute() or ".." in path.parts or "\\" in name or not name.isprintable()):
        yield Complaint(place, "expected the name of a file in the version's folder")


def _dynamic(config: ModelConfig, batching: DynamicBatching) -> Iterator[Complaint]:
    here = "dynamic_batching"
    most = config.max_batch_size or MAX_BATCH
    for name, sizes in (
        ("preferred_batch_size", batching.preferred_batch_size),
        ("allowed_batch_sizes", batching.allowed_batch_sizes),
    ):
        if any(not 1 <= size <= most for size in sizes):
            yield Complaint((here, name), f"must be between 1 and {most}, the most that a batch holds")
    yield from _positive(batching.max_queue_delay, (here, "max_queue_delay"))
    levels, default = batching.priority_levels, batching.default_priority_level
    if not 0 <= levels <= 1024:
        yield Complaint((here, "priority_levels"), "must be between 0 and 1024")
    if levels and not 1 <= default <= levels:
        yield Complaint((here, "default_priority_level"), f"must be between 1 and priority_levels, {levels}")
    yield from _queue(batching.default_queue_policy, (here, "default_queue_policy"))
    for level, policy in batching.priority_queue_policy.items():
        if not 1 <= level <= levels:
            yield Complaint(
                (here, "priority_queue_policy"), f"{level} is no level between 1 and priority_levels, {levels}"
            )
        yield from _queue(policy, (here, "priority_queue_policy"))
    for name, lengths in batching.pad_to.items():
        if config.inputs and config.input(name) is None:
            yield _unknown((here, "pad_to", name), name, config.inputs)
        if not lengths or min(lengths) < 1:
            yield Complaint((here, "pad_to", name), "expected lengths, from 1")


def _queue(policy: QueuePolicy, place: Place) -> Iterator[Complaint]:
    if policy.max_queue_size < 0:
        yield Complaint((*place, "max_queue_size"), "must be at least 0")
    yield from _positive(policy.default_timeout, (*place, "default_timeout"))


def _sequences(config: ModelConfig, batching: SequenceBatching) -> Iterator[Complaint]:
    here = "sequence_batching"
    if batching.max_sequence_idle <= 0:
        yield Complaint((here, "max_sequence_idle"), "must be more than 0")
    if batching.max_candidate_sequences < 0:
        yield Complaint((here, "max_candidate_sequences"), "must be at least 0")
    if not 0 <= batching.minimum_slot_utilization <= 1:
        yield Complaint((here, "minimum_slot_utilization"), "must be between 0 and 1")
    yield from _positive(batching.max_queue_delay, (here, "max_queue_delay"))
    controls = batching.controls
    yield from _repeated((control.kind for control in controls), lambda i: (here, "controls", i, "kind"))
    for i, control in enumerate(controls):
        expected = _CONTROL_TYPES[control.kind]
        if control.datatype not in expected:
            message = f"of a {control.kind} control is {' or '.join(sorted(expected))}"
            yield Complaint((here, "controls", i, "datatype"), message)
        if config.input(control.name) is not None:
            yield Complaint((here, "controls", i, "name"), "is an input of callers too: leave it out there")
    states = batching.states
    yield from _repeated((state.input_name for state in states), lambda i: (here, "states", i, "input_name"))
    yield from _repeated((state.output_name for state in states), lambda i: (here, "states", i, "output_name"))
    for i, state in enumerate(states):
        for name in ("input_name", "output_name"):
            if not getattr(state, name):
                yield Complaint((here, "states", i, name), "is required")
        yield from _datatype(state.datatype, (here, "states", i, "datatype"))
        yield from _dims(state.dims, (here, "states", i, "dims"))


def _instances(group: InstanceGroup, place: Place) -> Iterator[Complaint]:
    if not 1 <= group.count <= MAX_INSTANCES:
        yield Complaint((*place, "count"), f"must be between 1 and {MAX_INSTANCES}")
    if group.gpus and group.kind == "cpu":
        yield Complaint((*place, "gpus"), "are not for kind: cpu")
    for name, numbers in (("gpus", group.gpus), ("cpus", group.cpus)):
        if any(number < 0 for number in numbers):
            yield Complaint((*place, name), "are counted from 0")
    if group.threads < 0:
        yield Complaint((*place, "threads"), "must be at least 0")


def _warmup(config: ModelConfig, warmup: Warmup, place: Place) -> Iterator[Complaint]:
    most = config.max_batch_size or MAX_BATCH  # without one it may still be read from the model
    if not 0 <= warmup.batch_size <= most:
        yield Complaint((*place, "batch_size"), f"must be between 0 and {most}, the most that a batch holds")
    if not 1 <= warmup.count <= 10_000:
        yield Complaint((*place, "count"), "must be between 1 and 10000")
    yield from _repeated((spec.name for spec in warmup.inputs), lambda i: (*place, "inputs", i, "name"))
    made = {control.name for control in config.sequence_batching.controls} if config.sequence_batching else set()
    made |= {state.input_name for state in config.sequence_batching.states} if config.sequence_batching else set()
    for i, spec in enumerate(warmup.inputs):
        here = (*place, "inputs", i)
        if config.inputs and config.input(spec.name) is None and spec.name not in made:
            yield _unknown((*here, "name"), spec.name, config.inputs)
        yield from _datatype(spec.datatype, (*here, "datatype"))
        if any(dim < 1 for dim in spec.dims):
            yield Complaint((*here, "dims"), "each must be a length, from 1: a warm-up has one shape")
        if spec.data.startswith("file:"):
            yield from _file(spec.data.removeprefix("file:"), (*here, "data"))


def _together(config: ModelConfig) -> Iterator[Complaint]:
    """What excludes each other."""
    if config.dynamic_batching is not None and config.sequence_batching is not None:
        yield Complaint(("sequence_batching",), "and dynamic_batching exclude each other: keep one")
    if config.response_cache.enable and config.decoupled:
        yield Complaint(("response_cache",), "keeps one answer, and a decoupled model gives many: leave one out")
    if config.response_cache.enable and config.sequence_batching is not None:
        yield Complaint(("response_cache",), "cannot serve a sequence, whose answers depend on what came before")
    yield from _positive(config.execution_timeout, ("execution_timeout",))
    if config.memory_bytes < 0:
        yield Complaint(("memory_bytes",), "must be at least 0")


def _positive(seconds: float, place: Place) -> Iterator[Complaint]:
    if seconds < 0:
        yield Complaint(place, "must be at least 0")


def _unknown(place: Place, name: str, specs: Sequence[TensorSpec]) -> Complaint:
    return Complaint(place, "is no input of this model", closest(name, [spec.name for spec in specs]))


def _repeated(names: Iterable[str], place: Callable[[int], Place]) -> Iterator[Complaint]:
    seen: set[str] = set()
    for i, name in enumerate(names):
        if name in seen:
            yield Complaint(place(i), f"{name} is given twice: keep one")
        seen.add(name)
