"""TensorFlow's SavedModels, by one of their signatures: parameter `signature`, or `serving_default`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when it is imported
import tensorflow as tf

from runtimes.tensor.backends.base import Array, Device, Model, ModelLoadError, Tensors
from runtimes.tensor.backends.files import model_file, output_names
from runtimes.tensor.backends.signature import Found, completed
from runtimes.tensor.model_config import ModelConfig

FILENAMES: Final = ("model.savedmodel", "saved_model.pb")
SIGNATURE: Final = "serving_default"
_DATATYPES: Final = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
    "bfloat16": "BF16",
    "string": "BYTES",
}


class TensorflowBackend:
    """Its calls go through much Python, and its start takes seconds: not for the server's own process."""

    name = "tensorflow"
    declared = False

    def in_thread(self, config: ModelConfig) -> bool:
        return False

    def complete(self, config: ModelConfig, folder: Path) -> ModelConfig:
        _, signature = _loaded(config, folder)
        inputs = [_found(name, spec) for name, spec in signature.structured_input_signature[1].items()]
        outputs = [_found(name, spec) for name, spec in signature.structured_outputs.items()]
        return completed(config, inputs, outputs)

    def load(self, config: ModelConfig, folder: Path, device: Device) -> Model:
        if config.quantize:
            raise ModelLoadError("`quantize` is not for SavedModels: convert the model to ONNX")
        return _TensorflowModel(config, folder, device)


class _TensorflowModel:
    def __init__(self, config: ModelConfig, folder: Path, device: Device) -> None:
        _threads(device)
        self._device = "/CPU:0" if device.gpu is None else f"/GPU:{device.gpu}"
        with tf.device(self._device):
            self._model, self._signature = _loaded(config, folder)
        self._types = {name: spec.dtype for name, spec in self._signature.structured_input_signature[1].items()}
        self._outputs = output_names(config)

    def infer(self, inputs: Tensors) -> Tensors:
        with tf.device(self._device):
            answer = self._signature(**{name: _tensor(array, self._types[name]) for name, array in inputs.items()})
        return {name: _array(answer[name]) for name in self._outputs}

    def close(self) -> None:
        del self._model, self._signature


def _loaded(config: ModelConfig, folder: Path) -> tuple[Any, Any]:
    """The model, which must outlive its signature, and that."""
    path = model_file(config, folder, *FILENAMES)
    model = tf.saved_model.load(str(path if path.is_dir() else path.parent))
    name = config.parameters.get("signature", SIGNATURE)
    if name not in model.signatures:
        raise ModelLoadError(f"the model has no signature `{name}`: it has {', '.join(model.signatures) or 'none'}")
    return model, model.signatures[name]


def _threads(device: Device) -> None:
    if device.threads:
        try:
            tf.config.threading.set_intra_op_parallelism_threads(device.threads)
            tf.config.threading.set_inter_op_parallelism_threads(1)
        except RuntimeError:  # another model on a thread of this process was first
            return


def _found(name: str, spec: Any) -> Found:
    if (datatype := _DATATYPES.get(spec.dtype.name)) is None:
        raise ModelLoadError(f"`{name}` is a {spec.dtype.name}, which the protocol has no datatype for")
    rank = spec.shape.rank
    return Found(name, datatype, None if rank is None else tuple(-1 if dim is None else dim for dim in spec.shape))


def _tensor(array: Array, dtype: Any) -> Any:
    return tf.constant(array.view(dtype.as_numpy_dtype) if dtype == tf.bfloat16 else array, dtype)


def _array(tensor: Any) -> Array:
    array: Array = tensor.numpy()
    return np.asarray(array).view("<u2") if tensor.dtype == tf.bfloat16 else np.asarray(array)


BACKEND = TensorflowBackend()
