"""A model's configuration ↔ Triton's `ModelConfig` message, and the JSON of `/config`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, TypeVar

from adapters.wire.proto_json import plain
from adapters.wire.protos import model_config
from config.problem import closest
from runtimes.tensor.configuration import accelerators, message, parameters
from runtimes.tensor.configuration.complaint import Complaint
from runtimes.tensor.configuration.model_config import DynamicBatching, ModelConfig, SequenceBatching

Batching = TypeVar("Batching", DynamicBatching, SequenceBatching)
BACKENDS: Final = {"onnxruntime": "onnx", "pytorch": "torch"}
"""Triton's backends with another name in this runtime."""
TRITON_BACKENDS: Final = {name: triton for triton, name in BACKENDS.items()}
PLATFORMS: Final = {
    "onnxruntime_onnx": "onnx",
    "pytorch_libtorch": "torch",
    "tensorflow_savedmodel": "tensorflow",
}
"""The older names, which include the file's format."""
TREES: Final = {"xgboost": "xgboost", "xgboost_json": "xgboost", "xgboost_ubj": "xgboost", "lightgbm": "lightgbm"}
"""By `model_type` of Triton's backend for forests (fil)."""


class UnservedError(Exception):
    """Parts of a message that cannot be served. Places are the message's own."""

    def __init__(self, complaints: list[Complaint]) -> None:
        super().__init__(complaints)
        self.complaints = complaints


def from_message(sent: Any, name: str) -> tuple[ModelConfig, list[Complaint]]:
    """The configuration of the model `name`, and warnings. Its files are not read. Raises `UnservedError`."""
    reader = message.MessageReader()
    config: ModelConfig = reader.read(ModelConfig, sent)
    complaints = [*reader.complaints, *_refused(sent, name)]
    if complaints:
        raise UnservedError(complaints)
    backend = _backend(config)
    options = accelerators.parameters_of(sent.optimization) if backend == "onnx" else {}
    warnings = [warning for warning in reader.warnings if warning.place != ("optimization",) or not _is_served(sent)]
    return replace(config, name=name, backend=backend, parameters={**options, **config.parameters}), warnings


def _backend(config: ModelConfig) -> str:
    """Empty if neither `backend` nor `platform` is given."""
    if config.backend == "fil":
        return TREES[config.parameters["model_type"]]
    if config.backend:
        return BACKENDS.get(config.backend, config.backend)
    return PLATFORMS.get(config.platform, config.platform)


def _refused(sent: Any, name: str) -> Iterator[Complaint]:
    if sent.name and sent.name != name:
        yield Complaint(("name",), f"must be the folder's name, {name}, or left out")
    kind = sent.parameters["model_type"].string_value if "model_type" in sent.parameters else ""
    if sent.backend == "fil" and kind not in TREES:
        yield Complaint(("backend",), f"fil serves {', '.join(TREES)} here", closest(kind, TREES))
    if _is_onnx(sent):
        yield from accelerators.complaints(sent.optimization)
    for i, state in enumerate(sent.sequence_batching.state):
        if any(first.data_type != state.data_type for first in state.initial_state):
            place = ("sequence_batching", "state", i, "initial_state")
            yield Complaint(place, "must have the state's own data_type")


def _is_onnx(sent: Any) -> bool:
    return (sent.backend or sent.platform) in ("onnxruntime", "onnxruntime_onnx", "onnx")


def _is_served(sent: Any) -> bool:
    """Whether `optimization` has only fields that `accelerators` reads, and those that every server reports."""
    read = ("execution_accelerators", "graph") if _is_onnx(sent) else ()
    return all(
        field.name in read or (field.name.endswith("_pinned_memory") and value.enable)
        for field, value in sent.optimization.ListFields()
    )


def to_json(config: ModelConfig) -> dict[str, Any]:
    """The JSON of `/config`, as Triton writes it: fields with defaults, protobuf names, 64-bit integers as numbers."""
    return plain(to_message(config))


def to_message(config: ModelConfig) -> Any:
    """The `ModelConfig` message of a valid configuration."""
    made = model_config.ModelConfig()
    written = replace(
        config,
        backend="" if config.ensemble is not None else TRITON_BACKENDS.get(config.backend, config.backend),
        instance_groups=() if config.ensemble is not None else config.instance_groups,
        dynamic_batching=_preferring(config.dynamic_batching, config.max_batch_size),
        sequence_batching=_preferring(config.sequence_batching, config.max_batch_size),
        parameters=parameters.of(config),
    )
    message.write(written, made)
    if config.ensemble is not None:
        made.model_transaction_policy.SetInParent()
    else:
        made.optimization.input_pinned_memory.enable = True
        made.optimization.output_pinned_memory.enable = True
    for i, group in enumerate(made.instance_group):
        group.name = f"{config.name}_{i}"
    for state in made.sequence_batching.state:
        for first in state.initial_state:
            first.name, first.data_type = "initial state", state.data_type
            if not first.data_file:
                first.zero_data = True
    return made


def _preferring(batching: Batching | None, largest: int) -> Batching | None:
    """Triton reports the largest batch if no size is preferred."""
    if batching is None or batching.preferred_batch_size or not largest:
        return batching
    return replace(batching, preferred_batch_size=(largest,))
