"""Our configuration of a model → Triton's `ModelConfig` message, and its JSON as `/config` gives it."""

from __future__ import annotations

from typing import Any

from adapters.wire.proto_json import plain
from adapters.wire.protos import model_config
from runtimes.tensor.configuration import extensions
from runtimes.tensor.configuration.model_config import (
    DynamicBatching,
    InstanceGroup,
    ModelConfig,
    QueuePolicy,
    SequenceBatching,
    SequenceControl,
    SequenceState,
    TensorSpec,
    VersionPolicy,
    Warmup,
)
from runtimes.tensor.configuration.triton_names import TRITON_BACKENDS, TYPES

_FORMATS = {"": "FORMAT_NONE", "nhwc": "FORMAT_NHWC", "nchw": "FORMAT_NCHW"}
_KINDS = {"auto": "KIND_CPU", "cpu": "KIND_CPU", "gpu": "KIND_GPU"}
"""Told as it is computed, not as it was written."""
_CONTROLS = {"start": 0, "ready": 1, "end": 2, "corrid": 3}
_FALSE_TRUE = {
    "INT32": ("int32_false_true", int),
    "FP32": ("fp32_false_true", float),
    "BOOL": ("bool_false_true", bool),
}
_ENUMS = {
    "DataType": model_config.ModelInput.DESCRIPTOR.fields_by_name["data_type"].enum_type,
    "Format": model_config.ModelInput.DESCRIPTOR.fields_by_name["format"].enum_type,
    "Kind": model_config.ModelInstanceGroup.DESCRIPTOR.fields_by_name["kind"].enum_type,
}


def to_json(config: ModelConfig) -> dict[str, Any]:
    """As Triton tells it: every field with its default, the protobuf names, and 64-bit integers as numbers."""
    return plain(to_message(config))


def to_message(config: ModelConfig) -> Any:
    """A `ModelConfig` message."""
    message = model_config.ModelConfig(
        name=config.name,
        platform=config.platform,
        backend=TRITON_BACKENDS.get(config.backend, config.backend),
        max_batch_size=config.max_batch_size,
        default_model_filename=config.default_model_filename,
    )
    message.optimization.input_pinned_memory.enable = True
    message.optimization.output_pinned_memory.enable = True
    _policy(message.version_policy, config.version_policy)
    for spec in config.inputs:
        _input(message.input.add(), spec)
    for spec in config.outputs:
        _output(message.output.add(), spec)
    for i, group in enumerate(config.instance_groups):
        _group(message.instance_group.add(name=f"{config.name}_{i}"), group)
    if config.dynamic_batching is not None:
        message.dynamic_batching.SetInParent()
        _dynamic(message.dynamic_batching, config.dynamic_batching, config.max_batch_size)
    if config.sequence_batching is not None:
        message.sequence_batching.SetInParent()
        _sequences(message.sequence_batching, config.sequence_batching, config.max_batch_size)
    for warmup in config.warmup:
        _warmup(message.model_warmup.add(), warmup)
    for key, value in extensions.parameters_of(config).items():
        message.parameters[key].string_value = value
    if config.decoupled:
        message.model_transaction_policy.decoupled = True
    if config.response_cache.enable:
        message.response_cache.enable = True
    return message


def _policy(message: Any, policy: VersionPolicy) -> None:
    if policy.kind == "all":
        message.all.SetInParent()
    elif policy.kind == "specific":
        message.specific.versions.extend(policy.versions)
    else:
        message.latest.num_versions = policy.latest


def _input(message: Any, spec: TensorSpec) -> None:
    _tensor(message, spec)
    message.format = _format(spec)
    message.optional = spec.optional
    message.allow_ragged_batch = spec.allow_ragged_batch


def _format(spec: TensorSpec) -> int:
    return _number("Format", _FORMATS[spec.layout])


def _output(message: Any, spec: TensorSpec) -> None:
    _tensor(message, spec)
    message.label_filename = spec.label_file


def _tensor(message: Any, spec: TensorSpec) -> None:
    message.name = spec.name
    message.data_type = _type(spec.datatype)
    message.dims.extend(spec.dims)
    if spec.reshape is not None:
        message.reshape.SetInParent()
        message.reshape.shape.extend(spec.reshape)


def _type(datatype: str) -> int:
    return _number("DataType", TYPES[datatype])


def _group(message: Any, group: InstanceGroup) -> None:
    kind = "gpu" if group.kind == "auto" and group.gpus else group.kind
    message.kind = _number("Kind", _KINDS[kind])
    message.count = group.count
    message.gpus.extend(group.gpus)


def _queue(message: Any, policy: QueuePolicy) -> None:
    message.timeout_action = 1 if policy.timeout_action == "delay" else 0
    message.default_timeout_microseconds = _microseconds(policy.default_timeout)
    message.allow_timeout_override = policy.allow_timeout_override
    message.max_queue_size = policy.max_queue_size


def _preferred(sizes: tuple[int, ...], most: int) -> tuple[int, ...]:
    """Triton tells the largest batch where no size is preferred."""
    return sizes or ((most,) if most else ())


def _dynamic(message: Any, batching: DynamicBatching, most: int) -> None:
    message.preferred_batch_size.extend(_preferred(batching.preferred_batch_size, most))
    message.max_queue_delay_microseconds = _microseconds(batching.max_queue_delay)
    message.preserve_ordering = batching.preserve_ordering
    message.priority_levels = batching.priority_levels
    message.default_priority_level = batching.default_priority_level
    if batching.default_queue_policy != QueuePolicy():
        _queue(message.default_queue_policy, batching.default_queue_policy)
    for level, policy in batching.priority_queue_policy.items():
        _queue(message.priority_queue_policy[level], policy)


def _sequences(message: Any, batching: SequenceBatching, most: int) -> None:
    message.max_sequence_idle_microseconds = _microseconds(batching.max_sequence_idle)
    if batching.strategy == "oldest":
        message.oldest.max_candidate_sequences = batching.max_candidate_sequences
        message.oldest.preferred_batch_size.extend(_preferred(batching.preferred_batch_size, most))
        message.oldest.max_queue_delay_microseconds = _microseconds(batching.max_queue_delay)
        message.oldest.preserve_ordering = batching.preserve_ordering
    else:
        message.direct.SetInParent()
        message.direct.max_queue_delay_microseconds = _microseconds(batching.max_queue_delay)
        message.direct.minimum_slot_utilization = batching.minimum_slot_utilization
    for control in batching.controls:
        _control(message.control_input.add(name=control.name).control.add(), control)
    for state in batching.states:
        _state(message.state.add(), state)


def _control(message: Any, control: SequenceControl) -> None:
    message.kind = _CONTROLS[control.kind]
    if control.kind == "corrid":
        message.data_type = _type(control.datatype)
    else:
        field, kind = _FALSE_TRUE[control.datatype]
        getattr(message, field).extend(kind(value) for value in control.false_true)


def _state(message: Any, state: SequenceState) -> None:
    message.input_name = state.input_name
    message.output_name = state.output_name
    message.data_type = _type(state.datatype)
    message.dims.extend(state.dims)
    if state.initial_file or state.initial_dims is not None:
        first = message.initial_state.add(data_type=message.data_type, name="initial state")
        first.dims.extend(state.initial_dims or ())
        if state.initial_file:
            first.data_file = state.initial_file
        else:
            first.zero_data = True


def _warmup(message: Any, warmup: Warmup) -> None:
    message.name = warmup.name
    message.batch_size = warmup.batch_size
    message.count = warmup.count
    for spec in warmup.inputs:
        given = message.inputs[spec.name]
        given.data_type = _type(spec.datatype)
        given.dims.extend(spec.dims)
        if spec.data.startswith("file:"):
            given.input_data_file = spec.data.removeprefix("file:")
        elif spec.data == "random":
            given.random_data = True
        else:
            given.zero_data = True


def _number(enum: str, value: str) -> int:
    return int(_ENUMS[enum].values_by_name[value].number)


def _microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)
