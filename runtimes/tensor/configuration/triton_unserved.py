"""What of Triton's `ModelConfig` message this runtime does not do.

It is refused where answers would differ without it, and told as a warning where only the speed on some hardware
would.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from config.problem import closest
from runtimes.tensor.configuration import accelerators
from runtimes.tensor.configuration.checks import Complaint
from runtimes.tensor.configuration.triton_names import TREES

_REFUSED = {
    "ensemble_scheduling": "is not served by this runtime: serve the steps as models and join them in the gateway",
    "batch_input": "is not made by this runtime: leave it out, or pad the inputs to one shape",
    "batch_output": "is not read by this runtime: leave it out",
    "model_operations": "loads libraries into the process, which this runtime does not: leave it out",
    "model_repository_agents": "are not run by this runtime: leave them out (SHA256SUMS beside the files is checked)",
}
_NO_EFFECT = {
    "optimization": "has no effect here: the backend's own parameters say how it computes",
    "cc_model_filenames": "has no effect here: default_model_filename is loaded on any GPU",
    "metric_tags": "has no effect here",
    "model_metrics": "has no effect here: the buckets are fixed",
    "runtime": "has no effect here: the backend chooses",
}
_GROUP_NO_EFFECT = ("rate_limiter", "secondary_devices", "profile", "host_policy")


def refused(message: Any, name: str) -> Iterator[Complaint]:
    """Of the model `name`. Places are the message's own."""
    if message.name and message.name != name:
        yield Complaint(("name",), f"must be the folder's name, {name}, or left out")
    for field, why in _REFUSED.items():
        if _given(message, field):
            yield Complaint((field,), why)
    kind = message.parameters["model_type"].string_value if "model_type" in message.parameters else ""
    if message.backend == "fil" and kind not in TREES:
        yield Complaint(("backend",), f"fil serves {', '.join(TREES)} here", closest(kind, TREES))
    for i, spec in enumerate([*message.input, *message.output]):
        place = ("input", i) if i < len(message.input) else ("output", i - len(message.input))
        if not spec.dims:
            yield Complaint(
                (*place, "dims"), "is required: leave out all inputs and outputs to have the model tell them"
            )
        if spec.is_shape_tensor or spec.is_non_linear_format_io:
            yield Complaint(place, "is written for a TensorRT engine, which this runtime does not serve as a file")
    if _is_onnx(message):
        yield from accelerators.complaints(message.optimization)
    for i, group in enumerate(message.instance_group):
        if group.passive:
            yield Complaint(("instance_group", i, "passive"), "computes nothing: leave the group out")
    if message.WhichOneof("scheduling_choice") == "sequence_batching":
        yield from _refused_sequences(message.sequence_batching)


def _refused_sequences(batching: Any) -> Iterator[Complaint]:
    here = "sequence_batching"
    if batching.iterative_sequence:
        yield Complaint((here, "iterative_sequence"), "is not served by this runtime: make the model decoupled")
    if batching.WhichOneof("strategy_choice") == "oldest" and batching.oldest.max_candidate_sequences < 0:
        yield Complaint((here, "oldest", "max_candidate_sequences"), "must be at least 0")
    for i, given in enumerate(batching.control_input):
        if len(given.control) != 1:
            yield Complaint((here, "control_input", i), "has exactly one control")
    for i, state in enumerate(batching.state):
        if len(state.initial_state) > 1:
            yield Complaint((here, "state", i, "initial_state"), "is given twice: keep one")
        for first in state.initial_state:
            if first.data_type != state.data_type:
                yield Complaint((here, "state", i, "initial_state"), "must have the state's own data_type")


def without_effect(message: Any) -> Iterator[Complaint]:
    """What is read and changes nothing."""
    for field, why in _NO_EFFECT.items():
        if _given(message, field) and not (field == "optimization" and _is_served(message)):
            yield Complaint((field,), why)
    for i, group in enumerate(message.instance_group):
        for field in _GROUP_NO_EFFECT:
            if _given(group, field):
                yield Complaint(("instance_group", i, field), "has no effect here")


def _is_onnx(message: Any) -> bool:
    return (message.backend or message.platform) in ("onnxruntime", "onnxruntime_onnx", "onnx")


def _is_served(message: Any) -> bool:
    """Whether `optimization` is only what the backend reads (see `accelerators`), or what every server tells."""
    read = ("execution_accelerators", "graph") if _is_onnx(message) else ()
    return all(
        field.name in read or (field.name.endswith("_pinned_memory") and value.enable)
        for field, value in message.optimization.ListFields()
    )


def _given(message: Any, field: str) -> bool:
    return any(descriptor.name == field for descriptor, _ in message.ListFields())
