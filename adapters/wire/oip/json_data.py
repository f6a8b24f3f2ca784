"""Elements of a tensor as JSON: the `data` of the Open Inference Protocol.

Each datatype has its own decoder, which rejects values out of range while it parses. A list may be flat or nested like
the shape; encoded lists are flat.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from math import prod
from struct import error, pack, unpack
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from adapters.errors import CallerError
from adapters.tensors import DATATYPES, MAX_ELEMENTS, Tensor, join_bytes, split_bytes
from adapters.wire import decoding

MAX_RANK = 32
MAX_NESTED = 100
"""The depth of nested lists, with added dimensions of 1. Triton's limit."""
_EXACT = 2**53
"""A float represents every integer up to this one."""

_DATATYPES = ", ".join(sorted(DATATYPES))
CODES = {
    "BOOL": "?",
    "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q",
    "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q",
    "FP16": "e", "FP32": "f", "FP64": "d",
}  # fmt: skip
FLOATS = frozenset({"FP16", "FP32", "FP64"})


def _element(datatype: str) -> Any:
    """The type of one element. `struct` checks 64-bit bounds, which msgspec does not support."""
    if datatype == "BYTES":
        return str
    if datatype in FLOATS:
        return float
    if datatype == "BOOL":
        return bool | Annotated[int, Meta(ge=0, le=1)]
    bits = int(datatype.lstrip("UINT"))
    if datatype.startswith("U"):
        return Annotated[int, Meta(ge=0)] if bits == 64 else Annotated[int, Meta(ge=0, le=2**bits - 1)]
    return int if bits == 64 else Annotated[int, Meta(ge=-(2 ** (bits - 1)), le=2 ** (bits - 1) - 1)]


@lru_cache(maxsize=1024)
def _decoder(
    datatype: str, depth: int, nulls: bool = False, floats: bool = False
) -> Callable[[Raw | bytes], list[Any]]:
    """Make a decoder. `floats`: accept any number in the place of integers."""
    kind = int | float if floats else _element(datatype)
    if nulls and datatype in FLOATS:
        kind = kind | None
    for _ in range(depth):
        kind = list[kind]  # type: ignore[valid-type]
    return msgspec.json.Decoder(kind).decode


_FLAT = {datatype: _decoder(datatype, 1) for datatype in (*CODES, "BYTES")}


def check_shape(name: str, shape: tuple[int, ...]) -> None:
    """Raise `CallerError` for a shape that no array can have. The size of data is compared with the shape elsewhere."""
    if len(shape) > MAX_RANK:
        raise CallerError(f"`{name}` has more than {MAX_RANK} dimensions.", param=name)
    if 0 in shape and prod([dim for dim in shape if dim]) > MAX_ELEMENTS:
        raise CallerError(f"The shape {list(shape)} of `{name}` is too large.", param=name)


def read(raw: Raw, datatype: str, shape: tuple[int, ...], name: str, *, nulls: bool = False) -> bytes:
    """Convert a tensor's JSON to binary form. Raises `CallerError` that names the tensor and the change to make.

    `nulls`: null is NaN.
    """
    flat = _FLAT.get(datatype)
    if flat is None:
        raise _unreadable(datatype, name)
    try:
        values = (_decoder(datatype, 1, True) if nulls else flat)(raw)
    except msgspec.ValidationError as why:
        values = _nested(raw, datatype, shape, name, nulls, why)
    except decoding.MALFORMED_JSON as why:
        raise CallerError(f"The data of `{name}` is not valid JSON: {why}.", param=name) from None
    count = prod(shape)
    if len(values) != count:
        raise CallerError(
            f"`{name}` has {len(values)} elements in `data`, and {count} in its shape {list(shape)}.", param=name
        )
    return _pack(values, datatype, count, name, nulls)


def _pack(values: list[Any], datatype: str, count: int, name: str, nulls: bool) -> bytes:
    if datatype == "BYTES":
        try:
            return join_bytes([value.encode() for value in values])
        except UnicodeEncodeError:
            raise CallerError(f"`{name}` has text with half of a surrogate pair.", param=name) from None
    if nulls and datatype in FLOATS:
        values = [float("nan") if value is None else value for value in values]
    try:
        return pack(f"<{count}{CODES[datatype]}", *values)
    except (error, OverflowError):
        raise CallerError(f"`{name}` has a number that does not fit into {datatype}.", param=name) from None


def _nested(
    raw: Raw, datatype: str, shape: tuple[int, ...], name: str, nulls: bool, flat: msgspec.ValidationError
) -> list[Any]:
    """Decode nested lists, which must have the shape's dimensions; those of 1 may be left out or added."""
    depth = _depth(raw)
    if depth > MAX_NESTED:
        raise CallerError(f"The data of `{name}` is nested deeper than {MAX_NESTED} lists.", param=name)
    if depth < 2:
        values = _with_floats(raw, datatype, 1)
        if values is None:
            raise CallerError(f"The data of `{name}` is not {datatype}: {flat}.", param=name)
        return _whole(values, datatype, name)
    try:
        values = _decoder(datatype, depth, nulls)(raw)
    except msgspec.ValidationError as why:
        values = _with_floats(raw, datatype, depth)
        if values is None:
            message = f"The data of `{name}` is not {datatype}, or not nested evenly: {why}."
            raise CallerError(message, param=name) from None
    except decoding.MALFORMED_JSON as why:
        message = f"The data of `{name}` is not {datatype}, or not nested evenly: {why}."
        raise CallerError(message, param=name) from None
    dims = [len(values)]
    for _ in range(depth - 1):
        lengths = set(map(len, values))
        if len(lengths) > 1:
            raise CallerError(f"The data of `{name}` is ragged: lists of one level differ in length.", param=name)
        dims.append(lengths.pop() if lengths else 0)
        values = list(chain.from_iterable(values))
    if values and [dim for dim in dims if dim != 1] != [dim for dim in shape if dim != 1]:
        raise CallerError(
            f"The data of `{name}` is nested as {dims}, and its shape is {list(shape)}. "
            "Nest it as its shape, or send a flat list.",
            param=name,
        )
    return _whole(values, datatype, name)


def _with_floats(raw: Raw, datatype: str, depth: int) -> list[Any] | None:
    """Decode integers, some of them written as floats; None if a value is not an integer."""
    if "INT" not in datatype:
        return None
    try:
        return _decoder(datatype, depth, floats=True)(raw)
    except decoding.MALFORMED_JSON:
        return None


def _whole(values: list[Any], datatype: str, name: str) -> list[Any]:
    """The elements without floats in place of integers."""
    return [_integer(value, datatype, name) for value in values] if "INT" in datatype else values


def _integer(value: float, datatype: str, name: str) -> int:
    if isinstance(value, int):
        return value
    if value.is_integer() and abs(value) <= _EXACT:
        return int(value)
    raise CallerError(f"The data of `{name}` is not {datatype}: {value:.16g} is not a whole number.", param=name)


def _depth(raw: Raw) -> int:
    """The number of lists that open before the first element."""
    head = bytes(memoryview(raw)[:1024]).translate(None, b" \t\r\n")
    return len(head) - len(head.lstrip(b"["))


def written(tensor: Tensor) -> Sequence[Any]:
    """The elements for a JSON encoder, which encodes NaN as null.

    Raises `CallerError` for values that JSON cannot represent.
    """
    count = prod(tensor.shape)
    code = CODES.get(tensor.datatype)
    if code is not None:
        return unpack(f"<{count}{code}", tensor.data)
    if tensor.datatype != "BYTES":
        raise CallerError(
            f"{tensor.datatype} has no form in JSON. Request output `{tensor.name}` with `binary_data: true`.",
            param=tensor.name,
        )
    try:
        return [element.decode() for element in split_bytes(tensor.data, count, tensor.name)]
    except UnicodeDecodeError:
        raise CallerError(
            f"Output `{tensor.name}` holds bytes that are not text. Request it with `binary_data: true`.",
            param=tensor.name,
        ) from None


def _unreadable(datatype: str, name: str) -> CallerError:
    if datatype == "BF16":
        return CallerError(f"BF16 has no form in JSON. Send `{name}` with `binary_data_size`.", param=name)
    return unknown_datatype(datatype, name)


def unknown_datatype(datatype: str, name: str) -> CallerError:
    return CallerError(f"`{name}` has the unknown datatype `{datatype[:32]}`. Known: {_DATATYPES}.", param=name)
