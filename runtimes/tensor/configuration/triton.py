"""A model's configuration ↔ Triton's `ModelConfig` message, and the JSON of `/config`.

`optimization` of an ONNX model becomes parameters of the backend:

execution_accelerators { gpu_execution_accelerator: [{ name: "tensorrt" parameters { … } }] }
graph { level: 1 }
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, TypeVar

from adapters.wire.proto_json import plain
from adapters.wire.protos import model_config
from config.problem import closest
from runtimes.tensor.configuration import message, model_yaml
from runtimes.tensor.configuration.complaint import Complaint
from runtimes.tensor.configuration.model_config import DynamicBatching, ModelConfig, SequenceBatching

_PROVIDERS = {
    "tensorrt": "TensorrtExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
}
_TENSORRT = {
    "max_workspace_size_bytes": "trt_max_workspace_size",
    "max_cached_engines": "trt_max_cached_engines",
    "minimum_subgraph_size": "trt_min_subgraph_size",
}
_PRECISIONS = {"FP32": {}, "FP16": {"trt_fp16_enable": "1"}, "INT8": {"trt_int8_enable": "1"}}
_LEVELS = {-1: "basic", 0: "all", 1: "extended", 2: "all"}


def parameters_of(optimization: Any) -> dict[str, str]:
    """The parameters of the backend. Unknown accelerators are omitted; `complaints` reports them."""
    parameters: dict[str, str] = {}
    names: list[str] = []
    for _, accelerator in _accelerators(optimization):
        provider = _PROVIDERS.get(accelerator.name)
        if provider is not None:
            names.append(provider)
            options = _options(accelerator)
            parameters |= {f"{provider}.{option}": value for option, value in options.items()}
    if "TensorrtExecutionProvider" in names and "CUDAExecutionProvider" not in names:
        names.append("CUDAExecutionProvider")  # for operators that TensorRT lacks, as in Triton
    if names:
        parameters["execution_providers"] = ",".join(names)
    if optimization.graph.level in _LEVELS and optimization.HasField("graph"):
        parameters["graph_optimization_level"] = _LEVELS[optimization.graph.level]
    return parameters


def complaints(optimization: Any) -> Iterator[Complaint]:
    """Complaints about unknown accelerators. Places are the message's own."""
    for place, accelerator in _accelerators(optimization):
        if accelerator.name not in _PROVIDERS:
            yield Complaint((*place, "name"), f"expected {', '.join(_PROVIDERS)}")
        precision = accelerator.parameters.get("precision_mode", "FP32")
        if accelerator.name == "tensorrt" and precision not in _PRECISIONS:
            yield Complaint((*place, "parameters"), f"precision_mode is one of {', '.join(_PRECISIONS)}")
    if optimization.graph.level not in _LEVELS:
        yield Complaint(("optimization", "graph", "level"), "expected -1, 0 or 1")


def _accelerators(optimization: Any) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    chosen = optimization.execution_accelerators
    for field in ("gpu_execution_accelerator", "cpu_execution_accelerator"):
        for i, accelerator in enumerate(getattr(chosen, field)):
            yield ("optimization", "execution_accelerators", field, i), accelerator


def _options(accelerator: Any) -> dict[str, str]:
    if accelerator.name != "tensorrt":
        return dict(accelerator.parameters)
    options: dict[str, str] = dict(_PRECISIONS.get(accelerator.parameters.get("precision_mode", "FP32"), {}))
    for name, value in accelerator.parameters.items():
        if name != "precision_mode":
            options[_TENSORRT.get(name, name)] = value
    return options


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
_OF_TREES: Final = frozenset(
    {"model_type", "output_class", "predict_proba", "threshold", "predict_type", "rounds", "probe"}
)
"""Its parameters that the answer depends on, and ours."""
_OF_SPEED: Final = frozenset(
    {
        "algo", "blocks_per_sm", "chunk_size", "cuda_sparse", "layout", "storage_type", "threads_per_tree",
        "transfer_threshold", "use_experimental_optimizations", "xgboost_allow_unknown_field",
    }
)  # fmt: skip
"""Its parameters that no answer depends on."""


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
    options = parameters_of(sent.optimization) if backend == "onnx" else {}
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
    for key in sent.parameters if sent.backend == "fil" else ():
        if key not in _OF_TREES | _OF_SPEED and not key.startswith("headrace."):
            yield Complaint(("parameters",), f"fil's `{key}` is not served here: leave it out", closest(key, _OF_TREES))
    if _is_onnx(sent):
        yield from complaints(sent.optimization)
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
        parameters=model_yaml.of(config),
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
