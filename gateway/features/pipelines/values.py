"""The values that flow between steps: named tensors, texts, numbers and JSON values."""

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from adapters.errors import CallerError
from adapters.tensors import ITEM_SIZE, Tensor, element_count, join_bytes, split_bytes
from adapters.wire.oip.bodies import TensorMetadata

_DTYPES = {
    "BOOL": "?", "UINT8": "u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8",
    "INT8": "i1", "INT16": "<i2", "INT32": "<i4", "INT64": "<i8", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8",
}  # fmt: skip
Value = Any
"""A `Tensor`, or a JSON value: text, number, boolean, None, list or object."""
Values = Mapping[str, Value]
"""The outputs of one step, or the inputs of a request, by name."""
_FORMATS = {
    "BOOL": "?", "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q",
    "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q", "FP16": "e", "FP32": "f", "FP64": "d",
}  # fmt: skip
MAX_PLAIN = 65536
"""Elements of a tensor that are converted to plain values."""
MAX_TEXT = 4 * 1024 * 1024
"""Characters of the texts of a request, or of an answer, that a step reads."""


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


class ValueAbsent(CallerError):
    """The request of the client does not have a value, for which a default may stand."""


class UnusableValueError(Exception):
    """A value is unusable for a step; the message has the reason."""


def plain(value: Value) -> Value:
    """A tensor as JSON values: a tensor of one element as this element. Raises `UnusableValueError`."""
    if not isinstance(value, Tensor):
        return value
    elements = elements_of(value)
    return elements[0] if len(elements) == 1 else elements


def elements_of(tensor: Tensor) -> list[Any]:
    """The elements of a tensor, row by row: texts for BYTES. Raises `UnusableValueError`."""
    count = element_count(tensor.shape)
    if count > MAX_PLAIN:
        raise UnusableValueError(f"`{tensor.name}` has {count} elements, and {MAX_PLAIN} at most are read as values")
    if tensor.datatype == "BYTES":
        try:
            return [element.decode() for element in split_bytes(tensor.data, count, tensor.name)]
        except (CallerError, UnicodeDecodeError) as error:
            raise UnusableValueError(f"`{tensor.name}` is not text: {error}") from None
    if tensor.datatype == "BF16":
        halves = struct.unpack(f"<{count}H", tensor.data)
        return [struct.unpack("<f", struct.pack("<I", half << 16))[0] for half in halves]
    form = _FORMATS.get(tensor.datatype)
    if form is None or len(tensor.data) != count * ITEM_SIZE[tensor.datatype]:
        raise UnusableValueError(f"`{tensor.name}` is not a tensor of {tensor.datatype} with {count} elements")
    return list(struct.unpack(f"<{count}{form}", tensor.data))


def text_of(value: Value) -> str:
    """A value as text. Raises `UnusableValueError`."""
    value = plain(value)
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise UnusableValueError("it is not a text")


def tensor_of(name: str, value: Value, declared: TensorMetadata | None = None) -> Tensor:
    """A value as a tensor with this name. `declared` is the model's input. Raises `UnusableValueError`."""
    if isinstance(value, Tensor):
        return Tensor(name, value.datatype, value.shape, value.data, value.parameters)
    elements = list(value) if isinstance(value, list | tuple) else [value]
    datatype = declared.datatype if declared is not None else _datatype(elements)
    shape: tuple[int, ...] = (len(elements),)
    if declared is not None and len(declared.shape) > 1:
        shape = (*shape, *(1 for _ in declared.shape[1:]))
    return Tensor(name, datatype, shape, _data(name, datatype, elements))


def _datatype(elements: Sequence[Any]) -> str:
    if elements and all(isinstance(element, bool) for element in elements):
        return "BOOL"
    if elements and all(isinstance(element, int) for element in elements):
        return "INT64"
    if elements and all(isinstance(element, int | float) for element in elements):
        return "FP32"
    return "BYTES"


def _data(name: str, datatype: str, elements: Sequence[Any]) -> bytes:
    if datatype == "BYTES":
        if not all(isinstance(element, str) for element in elements):
            raise UnusableValueError(f"`{name}` has elements that are not texts")
        return join_bytes([element.encode(errors="replace") for element in elements])
    form = _FORMATS.get(datatype)
    if form is None or not all(isinstance(element, int | float) for element in elements):
        raise UnusableValueError(f"`{name}` has elements that are not of {datatype}")
    try:
        return struct.pack(f"<{len(elements)}{form}", *elements)
    except (struct.error, OverflowError, ValueError) as error:
        raise UnusableValueError(f"`{name}` has an element outside of {datatype}: {error}") from None
