"""Triton's `optimization` of an ONNX model, as parameters of the backend.

execution_accelerators { gpu_execution_accelerator: [{ name: "tensorrt" parameters { … } }] }
graph { level: 1 }
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from runtimes.tensor.configuration.complaint import Complaint

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
