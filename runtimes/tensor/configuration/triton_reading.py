"""Triton's `ModelConfig` message → ours."""

from __future__ import annotations

from typing import Any, Literal

from runtimes.tensor.configuration import accelerators
from runtimes.tensor.configuration.checks import Complaint
from runtimes.tensor.configuration.model_config import (
    DynamicBatching,
    InstanceGroup,
    ModelConfig,
    QueuePolicy,
    ResponseCache,
    SequenceBatching,
    SequenceControl,
    SequenceState,
    TensorSpec,
    VersionPolicy,
    Warmup,
    WarmupInput,
)
from runtimes.tensor.configuration.triton_names import BACKENDS, DATATYPES, PLATFORMS, TREES
from runtimes.tensor.configuration.triton_unserved import refused, without_effect

_CONTROLS: dict[int, Literal["start", "ready", "end", "corrid"]] = {0: "start", 1: "ready", 2: "end", 3: "corrid"}
_MICROSECONDS = 1_000_000


class Unserved(Exception):
    """Parts that cannot be served as they are written; places are the message's own."""

    def __init__(self, complaints: list[Complaint]) -> None:
        super().__init__(complaints)
        self.complaints = complaints


def from_message(message: Any, name: str) -> tuple[ModelConfig, list[Complaint]]:
    """The configuration of the model `name`, and warnings. Raises `Unserved`. Files are yet to be read."""
    if complaints := [*refused(message, name)]:
        raise Unserved(complaints)
    return _config(message, name), [*without_effect(message)]


def _config(message: Any, name: str) -> ModelConfig:
    backend = backend_of(message)
    parameters = accelerators.parameters_of(message.optimization) if backend == "onnx" else {}
    parameters |= {key: value.string_value for key, value in message.parameters.items()}
    dynamic = message.WhichOneof("scheduling_choice") == "dynamic_batching"
    sequences = message.WhichOneof("scheduling_choice") == "sequence_batching"
    return ModelConfig(
        name=name,
        backend=backend,
        inputs=tuple(_input(spec) for spec in message.input),
        outputs=tuple(_output(spec) for spec in message.output),
        max_batch_size=message.max_batch_size,
        platform=message.platform,
        default_model_filename=message.default_model_filename,
        version_policy=_policy(message.version_policy),
        dynamic_batching=_dynamic(message.dynamic_batching) if dynamic else None,
        sequence_batching=_sequences(message.sequence_batching) if sequences else None,
        instance_groups=tuple(_group(group) for group in message.instance_group) or (InstanceGroup(),),
        decoupled=message.model_transaction_policy.decoupled,
        warmup=tuple(_warmup(warmup) for warmup in message.model_warmup),
        response_cache=ResponseCache(message.response_cache.enable),
        parameters=parameters,
    )


def backend_of(message: Any) -> str:
    """Empty where neither `backend` nor `platform` says."""
    if message.backend == "fil":
        return TREES[message.parameters["model_type"].string_value]
    if message.backend:
        return BACKENDS.get(message.backend, str(message.backend))
    return PLATFORMS.get(message.platform, str(message.platform))


def _datatype(number: int) -> str:
    return DATATYPES.get(_TYPE_NAMES[number] if number < len(_TYPE_NAMES) else "", "")


_TYPE_NAMES = (
    "TYPE_INVALID", "TYPE_BOOL", "TYPE_UINT8", "TYPE_UINT16", "TYPE_UINT32", "TYPE_UINT64", "TYPE_INT8", "TYPE_INT16",
    "TYPE_INT32", "TYPE_INT64", "TYPE_FP16", "TYPE_FP32", "TYPE_FP64", "TYPE_STRING", "TYPE_BF16",
)  # fmt: skip
_LAYOUTS: tuple[Literal["", "nhwc", "nchw"], ...] = ("", "nhwc", "nchw")


def _input(spec: Any) -> TensorSpec:
    return TensorSpec(
        spec.name,
        _datatype(spec.data_type),
        tuple(spec.dims),
        spec.optional,
        _reshape(spec),
        spec.allow_ragged_batch,
        layout=_LAYOUTS[spec.format],
    )


def _output(spec: Any) -> TensorSpec:
    return TensorSpec(
        spec.name, _datatype(spec.data_type), tuple(spec.dims), reshape=_reshape(spec), label_file=spec.label_filename
    )


def _reshape(spec: Any) -> tuple[int, ...] | None:
    return tuple(spec.reshape.shape) if spec.HasField("reshape") else None


def _policy(policy: Any) -> VersionPolicy:
    match policy.WhichOneof("policy_choice"):
        case "all":
            return VersionPolicy("all")
        case "specific":
            return VersionPolicy("specific", versions=tuple(policy.specific.versions))
        case "latest":
            return VersionPolicy("latest", policy.latest.num_versions)
    return VersionPolicy()


def _queue(policy: Any) -> QueuePolicy:
    return QueuePolicy(
        policy.max_queue_size,
        policy.default_timeout_microseconds / _MICROSECONDS,
        "delay" if policy.timeout_action == 1 else "reject",
        policy.allow_timeout_override,
    )


def _dynamic(batching: Any) -> DynamicBatching:
    return DynamicBatching(
        tuple(batching.preferred_batch_size),
        batching.max_queue_delay_microseconds / _MICROSECONDS,
        batching.preserve_ordering,
        batching.priority_levels,
        batching.default_priority_level,
        _queue(batching.default_queue_policy),
        {level: _queue(policy) for level, policy in sorted(batching.priority_queue_policy.items())},
    )


def _sequences(batching: Any) -> SequenceBatching:
    oldest = batching.WhichOneof("strategy_choice") == "oldest"
    chosen = batching.oldest if oldest else batching.direct
    return SequenceBatching(
        strategy="oldest" if oldest else "direct",
        max_sequence_idle=(batching.max_sequence_idle_microseconds or 1_000_000) / _MICROSECONDS,
        max_candidate_sequences=batching.oldest.max_candidate_sequences,
        max_queue_delay=chosen.max_queue_delay_microseconds / _MICROSECONDS,
        minimum_slot_utilization=batching.direct.minimum_slot_utilization,
        preferred_batch_size=tuple(batching.oldest.preferred_batch_size),
        preserve_ordering=batching.oldest.preserve_ordering,
        controls=tuple(_control(given.name, given.control[0]) for given in batching.control_input),
        states=tuple(_state(state) for state in batching.state),
    )


def _control(name: str, control: Any) -> SequenceControl:
    for datatype, values in (
        ("INT32", control.int32_false_true),
        ("FP32", control.fp32_false_true),
        ("BOOL", control.bool_false_true),
    ):
        if len(values) == 2:
            return SequenceControl(_CONTROLS[control.kind], name, datatype, (float(values[0]), float(values[1])))
    return SequenceControl(_CONTROLS[control.kind], name, _datatype(control.data_type))


def _state(state: Any) -> SequenceState:
    first = state.initial_state[0] if state.initial_state else None
    return SequenceState(
        state.input_name,
        state.output_name,
        _datatype(state.data_type),
        tuple(state.dims),
        initial_file=first.data_file if first is not None else "",
        initial_dims=tuple(first.dims) if first is not None else None,
    )


def _group(group: Any) -> InstanceGroup:
    kinds: tuple[Literal["auto", "gpu", "cpu"], ...] = ("auto", "gpu", "cpu", "auto")
    return InstanceGroup(max(group.count, 1), kinds[group.kind], tuple(group.gpus))


def _warmup(warmup: Any) -> Warmup:
    inputs = tuple(
        WarmupInput(name, _datatype(spec.data_type), tuple(spec.dims), _warmup_data(spec))
        for name, spec in sorted(warmup.inputs.items())
    )
    return Warmup(warmup.name, warmup.batch_size, max(warmup.count, 1), inputs)


def _warmup_data(spec: Any) -> str:
    if spec.WhichOneof("input_data_type") == "input_data_file":
        return f"file:{spec.input_data_file}"
    return "random" if spec.random_data else "zero"
