"""The module `triton_python_backend_utils`, as models import it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from adapters.tensors import join_bytes
from runtimes.tensor.datatypes import DTYPES
from runtimes.tensor.triton_api import process
from runtimes.tensor.triton_api.configuration import BackendModelConfig as ModelConfig
from runtimes.tensor.triton_api.errors import TritonError, TritonModelException
from runtimes.tensor.triton_api.requests import BackendRequest as InferenceRequest
from runtimes.tensor.triton_api.requests import InferenceTrace, PreferredMemory
from runtimes.tensor.triton_api.responses import BackendResponse as InferenceResponse
from runtimes.tensor.triton_api.responses import BackendResponseSender as InferenceResponseSender
from runtimes.tensor.triton_api.telemetry import BackendLogger as Logger
from runtimes.tensor.triton_api.telemetry import BackendMetricFamily as MetricFamily
from runtimes.tensor.triton_api.tensors import TRITON_NUMBERS
from runtimes.tensor.triton_api.tensors import BackendTensor as Tensor

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
TRITONSERVER_REQUEST_RELEASE_ALL = 1
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2
TRITONSERVER_MEMORY_GPU = 0
TRITONSERVER_MEMORY_CPU = 1

_SCALARS: Final = {name: np.bool_ if name == "BOOL" else dtype.type for name, dtype in DTYPES.items() if name != "BF16"}
TRITON_STRING_TO_NUMPY: Final = {
    f"TYPE_{'STRING' if name == 'BYTES' else name}": bool if name == "BOOL" else scalar
    for name, scalar in _SCALARS.items()
}
_BY_NUMBER: Final = {TRITON_NUMBERS[name]: scalar for name, scalar in _SCALARS.items()}


def get_input_tensor_by_name(inference_request: Any, name: str) -> Tensor | None:
    return next((tensor for tensor in inference_request.inputs() if tensor.name() == name), None)


def get_output_tensor_by_name(inference_response: Any, name: str) -> Tensor | None:
    return next((tensor for tensor in inference_response.output_tensors() if tensor.name() == name), None)


def get_input_config_by_name(model_config: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    return next((tensor for tensor in model_config.get("input", ()) if tensor["name"] == name), None)


def get_output_config_by_name(model_config: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    return next((tensor for tensor in model_config.get("output", ()) if tensor["name"] == name), None)


def using_decoupled_model_transaction_policy(model_config: Mapping[str, Any]) -> bool:
    return bool(model_config.get("model_transaction_policy", {}).get("decoupled", False))


def triton_to_numpy_type(data_type: int) -> Any:
    """None for a number without a type in numpy."""
    return _BY_NUMBER.get(data_type)


def numpy_to_triton_type(data_type: Any) -> int | None:
    """None for a type that Triton lacks."""
    if data_type == np.object_ or data_type == np.bytes_:
        return TRITON_NUMBERS["BYTES"]
    return next((number for number, scalar in _BY_NUMBER.items() if data_type == scalar), None)


def triton_string_to_numpy(triton_type_string: str) -> Any:
    return TRITON_STRING_TO_NUMPY[triton_type_string]


def serialize_byte_tensor(input_tensor: np.ndarray[Any, Any]) -> Any:
    """The elements, each after its length in four bytes; None for a tensor of numbers."""
    if input_tensor.size == 0:
        return ()
    if input_tensor.dtype.kind not in "OS":
        return None
    items = input_tensor.reshape(-1).tolist()
    return join_bytes([item if type(item) is bytes else str(item).encode(errors="replace") for item in items])


def deserialize_bytes_tensor(encoded_tensor: bytes) -> np.ndarray[Any, Any]:
    """The elements of `serialize_byte_tensor`, in one dimension."""
    elements, at = [], 0
    while at < len(encoded_tensor):
        size = int.from_bytes(encoded_tensor[at : at + 4], "little")
        elements.append(bytes(encoded_tensor[at + 4 : at + 4 + size]))
        at += 4 + size
    array = np.empty(len(elements), object)
    array[:] = elements
    return array


def get_model_dir() -> str:
    """The folder of the version."""
    return str(process.folder)


def load_model(model_name: str, config: str = "", files: Mapping[str, bytes] | None = None) -> None:
    """Load a model of the repository. Raises `TritonModelException`, also where the server's mode is not explicit."""
    contents = dict(files or {})
    process.channel().query("load model", model=model_name, config=config, files=contents)


def unload_model(model_name: str, unload_dependents: bool = False) -> None:
    process.channel().query("unload model", model=model_name, dependents=unload_dependents)


def is_model_ready(model_name: str, model_version: str = "") -> bool:
    """Raises `TritonModelException` for a model that the repository lacks."""
    return bool(process.channel().query("model ready", model=model_name, version=model_version))


__all__ = [
    "TRITONSERVER_MEMORY_CPU",
    "TRITONSERVER_MEMORY_GPU",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START",
    "TRITONSERVER_REQUEST_RELEASE_ALL",
    "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE",
    "TRITONSERVER_RESPONSE_COMPLETE_FINAL",
    "TRITON_STRING_TO_NUMPY",
    "InferenceRequest",
    "InferenceResponse",
    "InferenceResponseSender",
    "InferenceTrace",
    "Logger",
    "MetricFamily",
    "ModelConfig",
    "PreferredMemory",
    "Tensor",
    "TritonError",
    "TritonModelException",
    "deserialize_bytes_tensor",
    "get_input_config_by_name",
    "get_input_tensor_by_name",
    "get_model_dir",
    "get_output_config_by_name",
    "get_output_tensor_by_name",
    "is_model_ready",
    "load_model",
    "numpy_to_triton_type",
    "serialize_byte_tensor",
    "triton_string_to_numpy",
    "triton_to_numpy_type",
    "unload_model",
    "using_decoupled_model_transaction_policy",
]
