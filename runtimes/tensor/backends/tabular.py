"""The common part of models of rows and columns: scikit-learn's, XGBoost's, LightGBM's, CatBoost's.

One input has a row of features, or each input is one feature or several. Inputs that have the names of the model's
features are joined in the model's order, others in the order of the configuration.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from runtimes.tensor.configuration.model_config import DynamicBatching, ModelConfig, TensorSpec
from runtimes.tensor.datatypes import DTYPES, datatype_of
from runtimes.tensor.interfaces import Array, ModelFailed, ModelLoadError, Tensors

MAX_BATCH_SIZE = 256
"""The largest batch, unless the configuration has one: a row is small."""
INPUT = "input"
Method = Callable[[Any], Any]
Table = Callable[[Sequence[Array]], Any]
"""Joins the columns of the inputs to what the methods take."""


class TabularModel:
    """`methods`: by output, the method that computes it. `features`: the model's names of its features, if it has
    any. Raises `ModelLoadError` if the inputs have other names."""

    def __init__(
        self, config: ModelConfig, methods: Mapping[str, Method], features: Sequence[str], table: Table | None = None
    ) -> None:
        self._inputs = in_order([spec.name for spec in config.inputs], features)
        self._missing = {spec.name: _missing(spec, config) for spec in config.inputs if spec.optional}
        self._table = table or joined
        self._outputs = [(spec.name, methods[spec.name], spec) for spec in config.outputs]

    def infer(self, inputs: Tensors) -> Tensors:
        return self.infer_some(inputs, [name for name, _, _ in self._outputs])

    def infer_some(self, inputs: Tensors, outputs: Collection[str]) -> Tensors:
        """These outputs. A method that computes several is called once."""
        rows = len(next(iter(inputs.values())))
        table = self._table(
            [decoded(inputs[name]) if name in inputs else self._missing[name].repeat(rows, 0) for name in self._inputs]
        )
        values: dict[Method, Any] = {}
        for name, method, _ in self._outputs:
            if name in outputs and method not in values:
                values[method] = method(table)
        return {name: _column(name, values[method], spec) for name, method, spec in self._outputs if name in outputs}

    def close(self) -> None:
        self._outputs = []


def _missing(spec: TensorSpec, config: ModelConfig) -> Array:
    """One row of an optional input that is not there: NaN, as these models are told of a missing value.

    Raises `ModelLoadError` if it has no such value, or if nothing tells how many rows a request has.
    """
    if spec.datatype not in ("FP16", "FP32", "FP64"):
        raise ModelLoadError(
            f"the input `{spec.name}` is optional, and {spec.datatype} has no missing value: write FP64"
        )
    if all(other.optional for other in config.inputs):
        raise ModelLoadError("all inputs are optional, so a request may have no rows")
    dims = spec.dims if config.max_batch_size else spec.dims[1:]
    if -1 in dims:
        raise ModelLoadError(f"the input `{spec.name}` is optional, and has any number of features: write how many")
    return np.full((1, int(np.prod(dims))), np.nan, DTYPES[spec.datatype])


def joined(columns: Sequence[Array]) -> Array:
    """One array of all features: rows by columns."""
    if len(columns) == 1:
        return columns[0]
    return np.concatenate([column.reshape(len(column), -1) for column in columns], axis=1)


def in_order(inputs: list[str], features: Sequence[str]) -> list[str]:
    """The inputs in the order of the model's features, if they have the same names."""
    by_feature = {name.replace(" ", "_"): name for name in inputs}  # LightGBM's files have no spaces in names
    wanting = [name.replace(" ", "_") for name in features]
    if len(inputs) != len(features) or not by_feature.keys() & set(wanting):
        return inputs
    if by_feature.keys() != set(wanting):
        raise ModelLoadError(f"the model's features are {', '.join(features)}, and the inputs are {', '.join(inputs)}")
    return [by_feature[name] for name in wanting]


def described(config: ModelConfig, features: int, datatype: str, outputs: Mapping[str, Method]) -> ModelConfig:
    """Complete a configuration: the input is a row of features, the outputs are those of the model for zeros.

    A `max_batch_size: 0` that is written stays: then the first dimension of each tensor is the rows of a request.
    """
    is_batched = config.batch != "written" or config.max_batch_size > 0
    rows = () if is_batched else (-1,)
    if not config.inputs:
        config = dataclasses.replace(config, inputs=(TensorSpec(INPUT, datatype, (*rows, features)),))
    of_a_row = [spec.dims[len(rows) :] for spec in config.inputs]
    given = sum(max(1, int(np.prod(dims))) for dims in of_a_row)
    if features > 0 and all(-1 not in dims for dims in of_a_row) and given != features:
        raise ModelLoadError(f"the model takes {features} features a row, and the inputs have {given}")
    if not config.outputs:
        config = dataclasses.replace(config, outputs=_outputs(outputs, features, datatype, is_batched))
    if not config.max_batch_size and is_batched:
        config = dataclasses.replace(
            config,
            max_batch_size=MAX_BATCH_SIZE,
            dynamic_batching=config.dynamic_batching or DynamicBatching(),
        )
    return config


def _outputs(methods: Mapping[str, Method], features: int, datatype: str, is_batched: bool) -> tuple[TensorSpec, ...]:
    """Those of the methods whose answers fit in a tensor."""
    row = np.zeros((1, features), DTYPES[datatype])
    specs = []
    unfit = ""
    for name, run in methods.items():
        try:
            specs.append(_spec(name, _answer(name, run, row), is_batched))
        except ModelFailed as error:
            unfit = f"`{name}`: {error}"
    if not specs:
        raise ModelLoadError(unfit)
    return tuple(specs)


def _answer(name: str, run: Method, row: Array) -> Any:
    try:
        return run(row)
    except Exception as error:
        raise ModelLoadError(
            f"`{name}` fails for a row of zeros, so its shape is not clear: write the outputs in the configuration"
            f" ({type(error).__name__}: {error})"
        ) from error


def _spec(name: str, value: Any, is_batched: bool) -> TensorSpec:
    array = _dense(value)
    datatype = "BYTES" if array.dtype.kind in "OSU" else datatype_of(array.dtype)
    if not is_batched:
        return TensorSpec(name, datatype, (-1, *array.shape[1:]))
    if array.ndim == 1:  # one number a row
        return TensorSpec(name, datatype, (1,), reshape=())
    return TensorSpec(name, datatype, array.shape[1:])


def _dense(value: Any) -> Array:
    """An answer as one array: sparse matrices in full, the arrays of several targets along the second dimension."""
    if hasattr(value, "toarray"):
        value = value.toarray()
    if isinstance(value, list) and value and all(isinstance(one, np.ndarray) for one in value):
        if len({one.shape for one in value}) > 1:
            raise ModelFailed("the model's targets have different numbers of classes: they fit in no tensor")
        return np.stack(value, axis=1)
    return np.asarray(value)


def _column(name: str, value: Any, spec: TensorSpec) -> Array:
    """An answer in its output's datatype."""
    array = _dense(value)
    if spec.datatype == "BYTES":
        array = array.astype(str) if array.dtype.kind not in "OSU" else array
    elif array.dtype.kind in "biuf":
        array = array.astype(DTYPES[spec.datatype], copy=False)
    else:
        raise ModelFailed(f"output `{name}` is {spec.datatype}, and the model returned {datatype_of(array.dtype)}")
    shape = spec.dims if spec.reshape is None else spec.reshape
    one_a_row = array.ndim in (1, 2) and array.size == len(array)
    return array.reshape(len(array), *shape) if one_a_row and shape in ((), (1,)) else array


def decoded(array: Array) -> Array:
    """BYTES as texts."""
    if not array.dtype.hasobject:
        return array
    texts = np.empty(array.size, dtype=object)
    texts[:] = [item.decode() for item in array.ravel().tolist()]
    return texts.reshape(array.shape)
