"""Builds the inputs of a model from tokens, and pools its outputs into one vector a row. Needs an extra."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.errors import BackendError, CallerError
from adapters.tensors import Inferred, Tensor
from adapters.wire.oip.bodies import ModelMetadata
from adapters.wire.openai.embeddings import Vector
from config.schema.config import EmbeddingsConfig
from gateway.features.embeddings.texts import Row

Floats = NDArray[np.float32]
_INTEGERS: Mapping[str, np.dtype[Any]] = {"INT32": np.dtype("<i4"), "INT64": np.dtype("<i8")}
_FLOATS: Mapping[str, np.dtype[Any]] = {
    "FP16": np.dtype("<f2"), "FP32": np.dtype("<f4"), "FP64": np.dtype("<f8"),
}  # fmt: skip
SMALLEST = 1e-12
"""The norm below which a vector is not normalized."""


def inputs_of(rows: list[Row], config: EmbeddingsConfig, model: ModelMetadata) -> list[Tensor]:
    """The inputs ids, mask and types that the model has. Raises `BackendError` for a model without ids."""
    width = max(map(len, rows))
    ids = np.zeros((len(rows), width), np.int64)
    mask = np.zeros((len(rows), width), np.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
        mask[i, : len(row)] = 1
    names = config.inputs
    values = {names.ids: ids, names.mask: mask, names.types: np.zeros_like(ids)}
    datatypes = {tensor.name: tensor.datatype for tensor in model.inputs}
    if names.ids not in datatypes:
        raise BackendError(f"The model has no input `{names.ids}` for tokens.", code="upstream_bad_response")
    return [_tensor(name, datatypes[name], array) for name, array in values.items() if name in datatypes]


def _tensor(name: str, datatype: str, array: NDArray[np.int64]) -> Tensor:
    kind = _INTEGERS.get(datatype)
    if kind is None:
        raise BackendError(f"The model's input `{name}` is {datatype}, which holds no tokens.")
    return Tensor(name, datatype, array.shape, array.astype(kind).tobytes())


def vectors_of(rows: list[Row], response: Inferred, config: EmbeddingsConfig, dimensions: int | None) -> list[Vector]:
    """One vector for each row. Raises `BackendError` for an output without vectors, `CallerError` for more `dimensions`
    than it has."""
    output = _output(response, config.output)
    lengths = np.array([len(row) for row in rows])
    pooled = _pooled(_array(output), lengths, config)
    if dimensions is not None:
        if dimensions > pooled.shape[1]:
            raise CallerError(f"`dimensions` is above the model's {pooled.shape[1]}.", param="dimensions")
        pooled = pooled[:, :dimensions]
    if config.normalize:
        pooled = pooled / np.maximum(np.linalg.norm(pooled, axis=1, keepdims=True), SMALLEST)
    exact = np.ascontiguousarray(pooled, "<f4")
    return [Vector(vector.tobytes(), ()) for vector in exact]


def _output(response: Inferred, name: str | None) -> Tensor:
    by_name: Mapping[str, Tensor] = {tensor.name: tensor for tensor in response.outputs}
    output = by_name.get(name) if name is not None else next(iter(response.outputs), None)
    if output is None:
        raise BackendError(f"The model gave no output `{name}`." if name else "The model gave no output.")
    return output


def _array(tensor: Tensor) -> Floats:
    if tensor.datatype == "BF16":  # the upper half of an FP32
        halves = np.frombuffer(tensor.data, "<u2").astype(np.uint32) << 16
        return halves.view(np.float32).reshape(tensor.shape)
    kind = _FLOATS.get(tensor.datatype)
    if kind is None:
        raise BackendError(f"The model's output `{tensor.name}` is {tensor.datatype}, which is no vector.")
    return np.frombuffer(tensor.data, kind).reshape(tensor.shape).astype(np.float32)


def _pooled(array: Floats, lengths: NDArray[np.int64], config: EmbeddingsConfig) -> Floats:
    rows = len(lengths)
    if array.ndim == 2 and array.shape[0] == rows:
        return array
    if array.ndim != 3 or array.shape[0] != rows or array.shape[1] < lengths.max():
        raise BackendError(f"The model's output has the shape {list(array.shape)}, which is no vector a text or token.")
    if config.pooling == "cls":
        return array[:, 0]
    if config.pooling == "last":
        return array[np.arange(rows), lengths - 1]
    mask = (np.arange(array.shape[1]) < lengths[:, None])[..., None]
    total: Floats = np.where(mask, array, 0).sum(axis=1, dtype=np.float32)
    return np.divide(total, lengths[:, None], dtype=np.float32)
