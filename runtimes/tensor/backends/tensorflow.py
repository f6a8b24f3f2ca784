"""TensorFlow's SavedModels, by one of their signatures: parameter `signature`, or `serving_default`.

A model's graph runs in a session, as in TensorFlow Serving: so do those of TensorFlow 1, and those whose Python objects
this version cannot restore.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when it is imported
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from runtimes.tensor.backends.files import model_file, output_names
from runtimes.tensor.backends.signature import ModelTensor, completed
from runtimes.tensor.backends.tensorflow_warmup import warm_up
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.interfaces import Array, Device, Model, ModelLoadError, Tensors

FILENAMES: Final = ("model.savedmodel", "saved_model.pb")
SIGNATURE: Final = "serving_default"
TAG: Final = "serve"
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
    name = "tensorflow"

    def complete(self, config: ModelConfig, folder: Path) -> ModelConfig:
        saved = saved_model_pb2.SavedModel.FromString((_folder(config, folder) / "saved_model.pb").read_bytes())
        graphs = [graph for graph in saved.meta_graphs if TAG in graph.meta_info_def.tags]
        if not graphs:
            raise ModelLoadError(f"the model has no graph that is tagged `{TAG}`")
        signature = _signature(config, graphs[0])
        return completed(config, _tensors(signature.inputs), _tensors(signature.outputs))

    def load(self, config: ModelConfig, folder: Path, device: Device) -> Model:
        if config.quantize:
            raise ModelLoadError("`quantize` is not for SavedModels: convert the model to ONNX")
        return _TensorflowModel(config, folder, device)


class _TensorflowModel:
    def __init__(self, config: ModelConfig, folder: Path, device: Device) -> None:
        graph = tf.Graph()
        self._session = tf.compat.v1.Session(graph=graph, config=_options(device))
        with graph.as_default():
            meta = tf.compat.v1.saved_model.load(self._session, [TAG], str(_folder(config, folder)))
        warm_up(_folder(config, folder), self._session, graph, meta.signature_def, SIGNATURE)
        signature = _signature(config, meta)
        self._inputs = list(signature.inputs)
        self._outputs = output_names(config)
        self._halves = {name for name, info in signature.inputs.items() if info.dtype == tf.bfloat16.as_datatype_enum}
        feeds = [graph.get_tensor_by_name(signature.inputs[name].name) for name in self._inputs]
        fetches = [graph.get_tensor_by_name(signature.outputs[name].name) for name in self._outputs]
        self._run = self._session.make_callable(fetches, feeds)

    def infer(self, inputs: Tensors) -> Tensors:
        answers = self._run(*[self._given(name, inputs[name]) for name in self._inputs])
        return {name: _array(answer) for name, answer in zip(self._outputs, answers, strict=True)}

    def _given(self, name: str, array: Array) -> Array:
        return array.view(tf.bfloat16.as_numpy_dtype) if name in self._halves else array

    def close(self) -> None:
        self._session.close()


def _folder(config: ModelConfig, folder: Path) -> Path:
    path = model_file(config, folder, *FILENAMES)
    return path if path.is_dir() else path.parent


def _signature(config: ModelConfig, graph: Any) -> Any:
    name = config.parameters.get("signature", SIGNATURE)
    if name not in graph.signature_def:
        have = sorted(name for name in graph.signature_def if not name.startswith("__"))
        raise ModelLoadError(f"the model has no signature `{name}`: it has {', '.join(have) or 'none'}")
    return graph.signature_def[name]


def _options(device: Device) -> Any:
    options = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=device.threads, inter_op_parallelism_threads=min(device.threads, 1)
    )
    if device.gpu is None:
        options.device_count["GPU"] = 0
    else:
        options.gpu_options.visible_device_list = str(device.gpu)
    return options


def _tensors(tensors: Any) -> list[ModelTensor]:
    result = []
    for name, info in sorted(tensors.items()):
        kind = tf.dtypes.as_dtype(info.dtype).name
        if (datatype := _DATATYPES.get(kind)) is None:
            raise ModelLoadError(f"`{name}` is a {kind}, which the protocol has no datatype for")
        shape = None if info.tensor_shape.unknown_rank else tuple(dim.size for dim in info.tensor_shape.dim)
        result.append(ModelTensor(name, datatype, shape))
    return result


def _array(answer: Any) -> Array:
    array = np.asarray(answer)
    return array.view("<u2") if array.dtype.name == "bfloat16" else array


BACKEND = TensorflowBackend()
