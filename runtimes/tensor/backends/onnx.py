"""ONNX models on onnxruntime, with every execution provider that is installed.

Parameters: `execution_providers` (names, comma-separated, the first that can compute a node does), options of theirs as
`PROVIDER.option`, session configuration entries as `session.…`, `intra_op_thread_count`, `inter_op_thread_count`,
`graph_optimization_level` (disable, basic, extended, all).
"""

from __future__ import annotations

import ctypes
import re
import threading
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime as ort

from adapters.process import TemporaryFolder
from runtimes.tensor.backends.files import model_file, output_names
from runtimes.tensor.backends.signature import ModelTensor, completed
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.interfaces import Array, Device, Model, ModelFailed, ModelLoadError, Tensors


def quantized(config: ModelConfig, path: Path) -> bytes:
    """The model converted to the datatype of `quantize`. Its inputs and outputs stay unchanged.

    int8: weights are converted once, activations at each call (parameter `quantize_ops`: only these operators).
    """
    if config.quantize == "int8":
        return _int8(path, _operators(config))
    if config.quantize == "fp16":
        import onnx
        from onnxruntime.transformers.float16 import convert_float_to_float16

        half: Any = convert_float_to_float16(onnx.load(path), keep_io_types=True)
        data: bytes = half.SerializeToString()
        return data
    raise ModelLoadError(f"onnxruntime has few operators in {config.quantize.upper()}: `quantize` here is int8 or fp16")


def _operators(config: ModelConfig) -> list[str] | None:
    written = config.parameters.get("quantize_ops", "")
    return [name.strip() for name in written.split(",") if name.strip()] or None


def _int8(path: Path, operators: list[str] | None) -> bytes:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with TemporaryFolder() as folder:
        out = Path(folder) / "model.onnx"
        with _QUANTIZING:
            quantize_dynamic(path, out, op_types_to_quantize=operators, weight_type=QuantType.QInt8)
        return out.read_bytes()


FILENAME = "model.onnx"
_QUANTIZING: Final = threading.Lock()
"""Held while a model is quantized: the library changes state of the whole process."""
_DATATYPES: Final = {
    "tensor(bool)": "BOOL",
    "tensor(uint8)": "UINT8",
    "tensor(uint16)": "UINT16",
    "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64",
    "tensor(int8)": "INT8",
    "tensor(int16)": "INT16",
    "tensor(int32)": "INT32",
    "tensor(int64)": "INT64",
    "tensor(float16)": "FP16",
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
    "tensor(bfloat16)": "BF16",
    "tensor(string)": "BYTES",
}
_WEIGHTS: Final = re.compile(r'External data path (does not exist|escapes)[^"]*"([^"]*)"')
_BFLOAT16: Final = 16
"""The number of BF16 among ONNX's element types."""
_LEVELS: Final = {
    "disable": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
_PACKAGES: Final = {
    "CUDAExecutionProvider": "onnxruntime-gpu",
    "TensorrtExecutionProvider": "onnxruntime-gpu and TensorRT",
    "NvTensorRTRTXExecutionProvider": "onnxruntime-trt-rtx",
    "OpenVINOExecutionProvider": "onnxruntime-openvino",
    "DmlExecutionProvider": "onnxruntime-directml",
    "QNNExecutionProvider": "onnxruntime-qnn",
    "MIGraphXExecutionProvider": "onnxruntime-migraphx",
    "ROCMExecutionProvider": "onnxruntime-rocm",
}


class OnnxBackend:
    name = "onnx"

    def complete(self, config: ModelConfig, folder: Path) -> ModelConfig:
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        session = _opened(str(_file(config, folder)), options, ["CPUExecutionProvider"])
        configured = {spec.name for spec in config.inputs}
        defaults = [node for node in session.get_overridable_initializers() if node.name in configured]
        inputs = [*_tensors(session.get_inputs()), *_tensors(defaults, optional=True)]
        return completed(config, inputs, _tensors(session.get_outputs()))

    def load(self, config: ModelConfig, folder: Path, device: Device) -> Model:
        path = _file(config, folder)
        return _OnnxModel(session(config, quantized(config, path) if config.quantize else path, device), config)


class _OnnxModel:
    def __init__(self, session: Any, config: ModelConfig) -> None:
        self._session = session
        self._outputs = output_names(config)
        inputs = [*session.get_inputs(), *session.get_overridable_initializers()]
        self._texts = [node.name for node in inputs if node.type == "tensor(string)"]
        nodes = [*inputs, *session.get_outputs()]
        self._halves = {node.name for node in nodes if node.type == "tensor(bfloat16)"}

    def infer(self, inputs: Tensors) -> Tensors:
        if self._texts:
            inputs = {name: _text(name, array) if name in self._texts else array for name, array in inputs.items()}
        run = self._run_values if self._halves else self._session.run
        return dict(zip(self._outputs, run(self._outputs, inputs), strict=True))

    def _run_values(self, outputs: list[str], inputs: Tensors) -> list[Array]:
        """Values for a session, with the type given for BF16, which numpy lacks."""
        values = {
            name: ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.ascontiguousarray(array), _BFLOAT16)
            if name in self._halves
            else ort.OrtValue.ortvalue_from_numpy(array)
            for name, array in inputs.items()
        }
        return [_array(value) for value in self._session.run_with_ort_values(outputs, values)]

    def close(self) -> None:
        self._session = None


def session(config: ModelConfig, model: Path | bytes, device: Device) -> Any:
    """A session with the options of the parameters."""
    parameters = config.parameters
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = _count(parameters.get("intra_op_thread_count"), device.threads)
    options.inter_op_num_threads = _count(parameters.get("inter_op_thread_count"), 1)
    if options.inter_op_num_threads > 1:
        options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    # Threads that spin between a model's operators are a fifth faster than those that sleep, where it is small. After
    # its last one they would take the cores from the server and from other models.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    for key, value in parameters.items():
        if key.startswith("session."):
            options.add_session_config_entry(key, value)
    if (level := parameters.get("graph_optimization_level")) is not None:
        if level not in _LEVELS:
            raise ModelLoadError(f"parameter `graph_optimization_level` is one of {', '.join(_LEVELS)}, not `{level}`")
        options.graph_optimization_level = _LEVELS[level]
    source = str(model) if isinstance(model, Path) else model
    return _opened(source, options, providers(config, device))


def _opened(source: str | bytes, options: Any, chosen: Any) -> Any:
    """A session. Raises `ModelLoadError` for a file of weights, whose error has the paths of this machine."""
    try:
        return ort.InferenceSession(source, options, providers=chosen)
    except Exception as error:
        if "Absolute path not allowed for external data" in str(error):
            raise ModelLoadError("the model's file of weights has an absolute path: it must lie beside it") from None
        if (match := _WEIGHTS.search(str(error))) is None or isinstance(source, bytes):
            raise
        where = "is not beside it" if match[1].startswith("does not") else "is outside of its folder"
        name = match[2].removeprefix(f"{Path(source).parent}/")[:200]
        raise ModelLoadError(f"the model's file of weights `{name}` {where}") from None


def providers(config: ModelConfig, device: Device) -> list[tuple[str, dict[str, str]]]:
    """Execution providers with their options, the CPU's last. Raises `ModelLoadError` for one that is missing."""
    written = config.parameters.get("execution_providers", "CUDAExecutionProvider" if device.gpu is not None else "")
    names = [name.strip() for name in written.split(",") if name.strip()]
    there = ort.get_available_providers()
    for name in names:
        if name not in there:
            package = _PACKAGES.get(name, "a build of onnxruntime with it")
            raise ModelLoadError(
                f"execution provider `{name}` is not in the installed onnxruntime, which has {', '.join(there)}:"
                f" install {package}"
            )
    result = []
    for name in names:
        options = {
            key.removeprefix(f"{name}."): value
            for key, value in config.parameters.items()
            if key.startswith(f"{name}.")
        }
        if device.gpu is not None and name in ("CUDAExecutionProvider", "TensorrtExecutionProvider"):
            options.setdefault("device_id", str(device.gpu))
        result.append((name, options))
    if "CPUExecutionProvider" not in names:
        result.append(("CPUExecutionProvider", {}))
    return result


def _file(config: ModelConfig, folder: Path) -> Path:
    path = model_file(config, folder, FILENAME)
    # Weights beside a model may lie in a folder of its name.
    return path / FILENAME if path.is_dir() else path


def _tensors(nodes: Any, *, optional: bool = False) -> list[ModelTensor]:
    result = []
    for node in nodes:
        if (datatype := _DATATYPES.get(node.type)) is None:
            raise ModelLoadError(f"`{node.name}` is a {node.type}, which the protocol has no datatype for")
        shape = node.shape if node.shape is not None else ()
        first = shape[0] if shape and isinstance(shape[0], str) else ""
        dims = tuple(dim if isinstance(dim, int) else -1 for dim in shape)
        result.append(ModelTensor(node.name, datatype, dims, optional, first))
    return result


def _text(name: str, array: Array) -> Array:
    """Convert BYTES to text, because onnxruntime's strings are text."""
    texts = np.empty(array.size, dtype=object)
    try:
        texts[:] = [item.decode() for item in array.ravel().tolist()]
    except UnicodeDecodeError:
        raise ModelFailed(f"input `{name}` of this model is text, and an element is not UTF-8") from None
    return texts.reshape(array.shape)


def _array(value: Any) -> Array:
    if value.data_type() != "tensor(bfloat16)":
        array: Array = value.numpy()
        return array
    size = value.tensor_size_in_bytes()
    data = ctypes.string_at(value.data_ptr(), size) if size else b""
    return np.frombuffer(data, "<u2").reshape(value.shape())


def _count(written: str | None, default: int) -> int:
    if written is None:
        return default
    if not written.isdigit():
        raise ModelLoadError(f"a number of threads is a whole number, not `{written}`")
    return int(written)


BACKEND = OnnxBackend()
