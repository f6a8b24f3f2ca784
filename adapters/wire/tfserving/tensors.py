"""Codec of TensorFlow's tensors in protobuf.

A message has one piece of bytes (`tensor_content`), or values in a field for each kind of datatype. Trailing values
that equal their predecessor may be omitted. Requests have the bytes. Responses have the values, which clients expect
since TensorFlow Serving sends them.
"""

from array import array
from collections.abc import Mapping
from math import prod
from struct import error, pack, unpack
from typing import Any

from adapters.errors import CallerError
from adapters.tensors import ITEM_SIZE, Tensor, join_bytes, split_bytes
from adapters.wire.oip import json_data as oip_data
from adapters.wire.protos.tfserving import datatypes, tensorflow

# Names of datatypes: TensorFlow's and the Open Inference Protocol's.

TENSORFLOW_NAMES: Mapping[str, str] = {
    "BOOL": "DT_BOOL",
    "UINT8": "DT_UINT8", "UINT16": "DT_UINT16", "UINT32": "DT_UINT32", "UINT64": "DT_UINT64",
    "INT8": "DT_INT8", "INT16": "DT_INT16", "INT32": "DT_INT32", "INT64": "DT_INT64",
    "FP16": "DT_HALF", "FP32": "DT_FLOAT", "FP64": "DT_DOUBLE", "BF16": "DT_BFLOAT16",
    "BYTES": "DT_STRING",
}  # fmt: skip
DATATYPES: Mapping[str, str] = {name: datatype for datatype, name in TENSORFLOW_NAMES.items()}
"""The datatypes of the protocol. Any other datatype has TensorFlow's name."""


MAX_FILLED = 1024 * 1024
"""Bytes of a tensor with omitted values: the bound on the memory that a small message allocates."""
_NUMBERS = {datatype: datatypes.values_by_name[name].number for datatype, name in TENSORFLOW_NAMES.items()}
_DATATYPE_OF = {number: datatype for datatype, number in _NUMBERS.items()}
_FIELDS = {
    "BOOL": "bool_val", "BYTES": "string_val", "FP16": "half_val", "BF16": "half_val",
    "FP32": "float_val", "FP64": "double_val", "INT64": "int64_val", "UINT32": "uint32_val", "UINT64": "uint64_val",
    **dict.fromkeys(("INT8", "INT16", "INT32", "UINT8", "UINT16"), "int_val"),
}  # fmt: skip
_CODES = {**oip_data.CODES, "FP16": "H", "BF16": "H"}
"""Codes of `struct`. The value of a half is its bits."""


def decode(name: str, message: Any) -> Tensor:
    """Decode a tensor. Raises `CallerError` if it is invalid or the Open Inference Protocol lacks its datatype."""
    datatype = _DATATYPE_OF.get(message.dtype)
    if datatype is None:
        declared = datatypes.values_by_number.get(message.dtype)
        called = message.dtype if declared is None else declared.name
        raise CallerError(f"`{name}` is {called}. Known: {', '.join(sorted(DATATYPES))}.", param=name)
    shape = tuple([dim.size for dim in message.tensor_shape.dim])
    if message.tensor_shape.unknown_rank or (shape and min(shape) < 0):
        raise CallerError(f"The shape of `{name}` is incomplete: give each dimension.", param=name)
    oip_data.check_shape(name, shape)
    if message.tensor_content:
        return Tensor(name, datatype, shape, _content(name, datatype, prod(shape), message.tensor_content))
    return Tensor(name, datatype, shape, _values(name, datatype, prod(shape), message))


def _content(name: str, datatype: str, count: int, content: bytes) -> bytes:
    if datatype == "BYTES":
        return join_bytes(_texts(name, count, content))
    if len(content) != count * ITEM_SIZE[datatype]:
        message = f"`{name}` has {len(content)} bytes, and its shape {count * ITEM_SIZE[datatype]}."
        raise CallerError(message, param=name)
    return content


def _texts(name: str, count: int, content: bytes) -> list[bytes]:
    """Split texts, which follow their lengths; each length is a varint."""
    lengths, at = list[int](), 0
    if count > len(content):
        raise CallerError(f"The number of texts in `{name}` does not match its shape.", param=name)
    try:
        for _ in range(count):
            length = shift = 0
            while content[at] > 127 and shift < 63:
                length |= (content[at] & 127) << shift
                at, shift = at + 1, shift + 7
            lengths.append(length | content[at] << shift)
            at += 1
    except IndexError:
        lengths.append(len(content))
    if at + sum(lengths) != len(content):
        raise CallerError(f"The number of texts in `{name}` does not match its shape.", param=name)
    texts: list[bytes] = []
    for length in lengths:
        texts.append(content[at : at + length])
        at += length
    return texts


def _values(name: str, datatype: str, count: int, message: Any) -> bytes:
    values = getattr(message, _FIELDS[datatype])
    there = len(values)
    if there > count:
        raise CallerError(f"`{name}` has {there} values, and its shape {count}.", param=name)
    if there < count and count * ITEM_SIZE.get(datatype, 4) + _weight(values, count, datatype) > MAX_FILLED:
        raise CallerError(f"`{name}` has {there} values, and its shape {count}: send all of them.", param=name)
    if datatype == "BYTES":
        last = values[-1] if there else b""
        return join_bytes([*values, *[last] * (count - there)])
    if datatype in ("FP32", "FP64") and there == count:
        return array("f" if datatype == "FP32" else "d", values).tobytes()
    last = values[-1] if there else 0
    try:
        return pack(f"<{count}{_CODES[datatype]}", *values, *[last] * (count - there))
    except (error, OverflowError):
        raise CallerError(f"`{name}` has a number that does not fit into {datatype}.", param=name) from None


def _weight(values: Any, count: int, datatype: str) -> int:
    """Return the bytes of `count` repetitions of the last text."""
    return len(values[-1]) * count if datatype == "BYTES" and len(values) else 0


def encode(message: Any, tensor: Tensor, *, by_value: bool = False) -> None:
    """Fill a message with a tensor, in one piece or (`by_value`) as TensorFlow Serving does. Raises `CallerError`."""
    message.dtype = _NUMBERS[tensor.datatype]
    for size in tensor.shape:
        message.tensor_shape.dim.add(size=size)
    count = prod(tensor.shape)
    if tensor.datatype == "BYTES":
        message.string_val.extend(split_bytes(tensor.data, count, tensor.name))
    elif not by_value:
        message.tensor_content = bytes(tensor.data)
    elif tensor.datatype in ("FP32", "FP64", "BOOL"):
        # The encoded field has the same bytes as the tensor.
        field = tensorflow.TensorProto.DESCRIPTOR.fields_by_name[_FIELDS[tensor.datatype]].number
        if tensor.data:
            message.MergeFromString(_head(field, len(tensor.data)) + bytes(tensor.data))
    else:
        values = unpack(f"<{count}{_CODES[tensor.datatype]}", tensor.data)
        getattr(message, _FIELDS[tensor.datatype]).extend(values)


def _head(field: int, length: int) -> bytes:
    """Encode the tag and the length of a packed field."""
    out = bytearray((field << 3 | 2,))
    while length > 127:
        out.append(length & 127 | 128)
        length >>= 7
    out.append(length)
    return bytes(out)
