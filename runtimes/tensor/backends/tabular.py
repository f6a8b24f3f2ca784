"""The common part of models of rows and columns: scikit-learn's, XGBoost's, LightGBM's.

One input has a row of features, or each input is one feature or several, joined in the order of the configuration.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from runtimes.tensor.configuration.model_config import DynamicBatching, ModelConfig, TensorSpec
from runtimes.tensor.datatypes import DTYPES, datatype_of
from runtimes.tensor.interfaces import Array, ModelFailed, ModelLoadError, Tensors

MAX_BATCH_SIZE = 256
"""The largest batch, unless the configuration has one: a row is small."""
INPUT = "input"
Method = Callable[[Array], Any]


class TabularModel:
    """`methods`: by output, the method that computes it."""

    def __init__(self, config: ModelConfig, methods: Mapping[str, Method]) -> None:
        self._inputs = [spec.name for spec in config.inputs]
        self._outputs = [(spec.name, methods[spec.name], spec) for spec in config.outputs]

    def infer(self, inputs: Tensors) -> Tensors:
        table = self._table(inputs)
        return {name: _column(name, method(table), spec) for name, method, spec in self._outputs}

    def close(self) -> None:
        self._outputs = []

    def _table(self, inputs: Tensors) -> Array:
        columns = [_texts(inputs[name]) for name in self._inputs]
        if len(columns) == 1:
            return columns[0]
        return np.concatenate([column.reshape(len(column), -1) for column in columns], axis=1)


def described(config: ModelConfig, features: int, datatype: str, outputs: Mapping[str, Method]) -> ModelConfig:
    """Complete a configuration: the input is a row of features, the outputs are those of the model for zeros."""
    if not config.inputs:
        config = dataclasses.replace(config, inputs=(TensorSpec(INPUT, datatype, (features,)),))
    given = sum(max(1, int(np.prod(spec.dims))) for spec in config.inputs)
    if features > 0 and all(-1 not in spec.dims for spec in config.inputs) and given != features:
        raise ModelLoadError(f"the model takes {features} features a row, and the inputs have {given}")
    if not config.outputs:
        row = np.zeros((1, features), DTYPES[datatype])
        config = dataclasses.replace(config, outputs=tuple(_spec(name, run(row)) for name, run in outputs.items()))
    if not config.max_batch_size:
        config = dataclasses.replace(
            config,
            max_batch_size=MAX_BATCH_SIZE,
            dynamic_batching=config.dynamic_batching or DynamicBatching(),
        )
    return config


def gives_margin(config: ModelConfig) -> bool:
    """Whether the outputs of trees are the sums before the last transformation. Raises `ModelLoadError`."""
    if config.quantize:
        raise ModelLoadError("`quantize` is for networks, not for trees")
    kind = config.parameters.get("predict_type", "value")
    if kind not in ("value", "margin"):
        raise ModelLoadError(f"parameter `predict_type` is value or margin, not `{kind}`")
    return kind == "margin"


def _spec(name: str, value: Any) -> TensorSpec:
    array = np.asarray(value)
    datatype = "BYTES" if array.dtype.kind in "OSU" else datatype_of(array.dtype)
    if array.ndim == 1:  # one number a row
        return TensorSpec(name, datatype, (1,), reshape=())
    return TensorSpec(name, datatype, array.shape[1:])


def _column(name: str, value: Any, spec: TensorSpec) -> Array:
    """An answer in its output's datatype."""
    array = np.asarray(value)
    if spec.datatype == "BYTES":
        array = array.astype(str) if array.dtype.kind not in "OSU" else array
    elif array.dtype.kind in "biuf":
        array = array.astype(DTYPES[spec.datatype], copy=False)
    else:
        raise ModelFailed(f"output `{name}` is {spec.datatype}, and the model returned {datatype_of(array.dtype)}")
    shape = spec.dims if spec.reshape is None else spec.reshape
    one_a_row = array.ndim in (1, 2) and array.size == len(array)
    return array.reshape(len(array), *shape) if one_a_row and shape in ((), (1,)) else array


def _texts(array: Array) -> Array:
    if not array.dtype.hasobject:
        return array
    texts = np.empty(array.size, dtype=object)
    texts[:] = [item.decode() for item in array.ravel().tolist()]
    return texts.reshape(array.shape)
