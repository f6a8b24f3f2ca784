"""Models on OpenVINO: its own IR, and the other formats that it reads (ONNX, PaddlePaddle, TensorFlow Lite).

Parameters: `device` (CPU, GPU.0, AUTO …) and OpenVINO's own properties by their names (`NUM_STREAMS`, `CACHE_DIR` …).
Those of Triton's backend have the same effect, or none where shapes that vary need no help.

A tensor of a model may have several names, and a configuration may use any of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import openvino as ov

from runtimes.tensor.backends.files import model_file, output_names
from runtimes.tensor.backends.openvino_shapes import shaped
from runtimes.tensor.backends.signature import ModelTensor, completed
from runtimes.tensor.configuration.model_config import ModelConfig, TensorSpec
from runtimes.tensor.interfaces import Array, Device, Model, ModelLoadError, Tensors

FILENAMES: Final = ("model.xml", "model.onnx", "model.pdmodel", "model.tflite")
_DATATYPES: Final = {
    "boolean": "BOOL",
    "u8": "UINT8",
    "u16": "UINT16",
    "u32": "UINT32",
    "u64": "UINT64",
    "i8": "INT8",
    "i16": "INT16",
    "i32": "INT32",
    "i64": "INT64",
    "f16": "FP16",
    "f32": "FP32",
    "f64": "FP64",
    "bf16": "BF16",
}
_NEEDLESS: Final = frozenset({"SKIP_OV_DYNAMIC_BATCHSIZE", "ENABLE_BATCH_PADDING", "RESHAPE_IO_LAYERS"})
"""Parameters of Triton's backend that help with shapes that vary, which need none here."""
_PRECISIONS: Final = {"": "f32", "fp16": "f16", "bf16": "bf16"}


class OpenvinoBackend:
    name = "openvino"

    def complete(self, config: ModelConfig, folder: Path) -> ModelConfig:
        model = shaped(ov.Core().read_model(str(model_file(config, folder, *FILENAMES))), config.parameters)
        return completed(config, _tensors(model.inputs, config.inputs), _tensors(model.outputs, config.outputs))

    def load(self, config: ModelConfig, folder: Path, device: Device) -> Model:
        return _OpenvinoModel(config, compiled(config, model_file(config, folder, *FILENAMES), device))


class _OpenvinoModel:
    def __init__(self, config: ModelConfig, model: Any) -> None:
        self._request = model.create_infer_request()
        self._places = _all_names(model.inputs)
        self._inputs = {name: model.inputs[place].get_element_type() for name, place in self._places.items()}
        ports = _all_names(model.outputs)
        self._outputs = [(name, ports[name]) for name in output_names(config)]

    def infer(self, inputs: Tensors) -> Tensors:
        tensors = {self._places[name]: _tensor(array, self._inputs[name]) for name, array in inputs.items()}
        self._request.infer(tensors, share_inputs=True)
        return {name: _array(self._request.get_output_tensor(index)) for name, index in self._outputs}

    def close(self) -> None:
        del self._request


def compiled(config: ModelConfig, path: Path, device: Device) -> Any:
    """The model for its device. Without `quantize` it computes in the precision of its file."""
    if config.quantize not in _PRECISIONS:
        raise ModelLoadError("OpenVINO quantizes to int8 ahead of time (nncf); `quantize` here is fp16 or bf16")
    properties: dict[str, Any] = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
        "INFERENCE_PRECISION_HINT": _PRECISIONS[config.quantize],
    }
    given = _of_triton(config.parameters)
    target = given.pop("device", "CPU" if device.gpu is None else f"GPU.{device.gpu}")
    if target == "CPU":
        properties["ENABLE_CPU_PINNING"] = "NO"  # the instance is pinned, if anything is
        if device.threads:
            properties["INFERENCE_NUM_THREADS"] = str(device.threads)
    core = ov.Core()
    devices = {"AUTO", "HETERO"} | {one.partition(".")[0] for one in core.available_devices}
    if target.partition(".")[0].partition(":")[0] not in devices:
        raise ModelLoadError(f"OpenVINO has no device `{target}` here: it has {', '.join(core.available_devices)}")
    own = {name: value for name, value in given.items() if name.isupper()}
    try:
        return core.compile_model(shaped(core.read_model(str(path)), config.parameters), target, properties | own)
    except RuntimeError as error:  # several lines, with paths of its own sources
        *_, reason = str(error).strip().splitlines()
        raise ModelLoadError(
            f"OpenVINO refuses the model or a parameter ({', '.join(own) or 'none'}): {reason}"
        ) from None


def _of_triton(parameters: Mapping[str, str]) -> dict[str, str]:
    """The parameters with those of Triton's backend in OpenVINO's words."""
    given = {name: value for name, value in parameters.items() if name not in _NEEDLESS}
    if "CPU_EXTENSION_PATH" in given:
        raise ModelLoadError("parameter `CPU_EXTENSION_PATH` loads a library into the server: it is not served here")
    if "TARGET_DEVICE" in given:
        given["device"] = given.pop("TARGET_DEVICE")
    if given.pop("HINT_BF16", "NO").upper() in ("YES", "TRUE"):
        given["INFERENCE_PRECISION_HINT"] = "bf16"
    return given


def _tensors(ports: Any, specs: Sequence[TensorSpec]) -> list[ModelTensor]:
    tensors = []
    configured = {spec.name for spec in specs}
    for port in ports:
        name = next((name for name in _names(port) if name in configured), _names(port)[0])
        kind = port.get_element_type().get_type_name()
        if (datatype := _DATATYPES.get(kind)) is None:
            raise ModelLoadError(f"`{name}` is a {kind}, which is not served here: try the onnx backend")
        shape = port.get_partial_shape()
        dims, most = None, -1
        if shape.rank.is_static:
            dims = tuple(dim.get_length() if dim.is_static else -1 for dim in shape)
            most = shape[0].get_max_length() if dims and dims[0] == -1 else -1
        tensors.append(ModelTensor(name, datatype, dims, most=most if most > 0 else None))
    return tensors


def _names(port: Any) -> list[str]:
    """The names of a tensor. The first is that of a configuration without one: a word rather than a number."""
    names = sorted(port.get_names(), key=lambda name: (name.isdigit(), ":" in name, len(name), name))
    return names or [port.get_node().get_friendly_name()]


def _all_names(ports: Any) -> dict[str, int]:
    return {name: index for index, port in enumerate(ports) for name in _names(port)}


def _tensor(array: Array, kind: Any) -> Any:
    if kind == ov.Type.bf16:
        return ov.Tensor(np.ascontiguousarray(array), list(array.shape), kind)
    # The model must not write to the server's buffers.
    shared = array.flags.c_contiguous and array.flags.writeable
    return ov.Tensor(array if shared else np.array(array), shared_memory=True)


def _array(tensor: Any) -> Array:
    """A copy of an output, because the request's memory is reused."""
    data = np.array(tensor.data)
    return data.view("<u2").reshape(list(tensor.shape)) if tensor.get_element_type() == ov.Type.bf16 else data


BACKEND = OpenvinoBackend()
