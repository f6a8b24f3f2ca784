"""Tensors as arrays, for expressions and for combining. Needs numpy, which every pipeline of tensors has."""

from __future__ import annotations

from typing import Any

from adapters.errors import CallerError
from adapters.tensors import ITEM_SIZE, Tensor, element_count, join_bytes, split_bytes
from gateway.features.pipelines.values import UnusableValueError, Value

_DTYPES = {
    "BOOL": "?", "UINT8": "u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8",
    "INT8": "i1", "INT16": "<i2", "INT32": "<i4", "INT64": "<i8", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8",
}  # fmt: skip


def array_of(value: Value) -> Any:
    """A tensor as an array: BYTES as objects of `bytes`, BF16 as FP32. Any other value is unchanged.

    Raises `UnusableValueError` for a tensor whose data do not fit its shape.
    """
    if not isinstance(value, Tensor):
        return value
    import numpy as np  # an extra

    count = element_count(value.shape)
    if value.datatype == "BYTES":
        try:
            elements = split_bytes(value.data, count, value.name)
        except CallerError as error:
            raise UnusableValueError(error.message) from None
        array = np.empty(count, object)
        array[:] = elements
        return array.reshape(value.shape)
    if len(value.data) != count * ITEM_SIZE.get(value.datatype, 0):
        raise UnusableValueError(f"`{value.name}` has {len(value.data)} bytes, which do not fit its shape")
    if value.datatype == "BF16":
        halves = np.frombuffer(value.data, "<u2").astype(np.uint32) << 16
        return halves.view(np.float32).reshape(value.shape)
    return np.frombuffer(value.data, _DTYPES[value.datatype]).reshape(value.shape)


def tensor_from(name: str, datatype: str, array: Any) -> Tensor:
    """An array as a tensor of a datatype."""
    import numpy as np

    if datatype == "BYTES":
        return Tensor(name, datatype, array.shape, join_bytes(list(array.reshape(-1))))
    if datatype == "BF16":
        halves = (np.ascontiguousarray(array, "<f4").view(np.uint32) >> 16).astype("<u2")
        return Tensor(name, datatype, array.shape, halves.tobytes())
    return Tensor(name, datatype, array.shape, np.ascontiguousarray(array, _DTYPES[datatype]).tobytes())
