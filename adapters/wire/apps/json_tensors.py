"""Decodes tensors from plain JSON values, for servers whose bodies have no shapes or datatypes."""

from collections.abc import Sequence
from itertools import chain
from struct import error, pack
from typing import Any

import msgspec

from adapters.tensors import Tensor, join_bytes
from adapters.wire import decoding
from adapters.wire.oip import json_data as oip_data

_encode = msgspec.json.Encoder().encode
_NONE = type(None)
_FLOATS: list[set[type]] = [{float}, {int, float}, {_NONE}, {int, _NONE}, {float, _NONE}, {int, float, _NONE}, set()]
_TYPES: dict[frozenset[type], str] = {
    **{frozenset(kinds): "FP64" for kinds in _FLOATS},
    frozenset({bool}): "BOOL",
    frozenset({int}): "INT64",
    frozenset({str}): "BYTES",
}
"""Datatypes inferred from the elements of a JSON list, as numpy infers them; null is NaN."""


def tensor_of(value: Any, name: str, datatype: str = "") -> Tensor:
    """Decode a value to the tensor `name`.

    A scalar becomes one element, and a value that is neither a number nor a text becomes its JSON. Raises
    `BackendError` if the value does not fit a given `datatype`.
    """
    dims, flat = _flattened(value)
    if flat is None and datatype not in ("", "BYTES"):
        raise decoding.bad_response(f"The upstream's output `{name}` is not an array of {datatype}.")
    if flat is None:
        return Tensor(name, "BYTES", (1,), join_bytes([_encode(value)]))
    kinds = frozenset(map(type, flat))
    resolved = datatype or _TYPES.get(kinds)
    if resolved is None:
        return Tensor(name, "BYTES", (1,), join_bytes([_encode(value)]))
    if resolved == "BYTES":
        flat = [one if isinstance(one, str) else _encode(one).decode() for one in flat]
    return Tensor(name, resolved, dims, _packed(flat, resolved, name))


def _flattened(value: Any) -> tuple[tuple[int, ...], list[Any] | None]:
    """Return the dimensions and the elements; None if lists of one level differ in length or hold objects."""
    if not isinstance(value, list):
        return (1,), None if isinstance(value, dict) else [value]
    dims, items = [len(value)], value
    while items and isinstance(items[0], list):
        width = len(items[0])
        if len(dims) == oip_data.MAX_RANK or any(not isinstance(i, list) or len(i) != width for i in items):
            return (), None
        dims.append(width)
        items = list(chain.from_iterable(items))
    if {list, dict}.intersection(map(type, items)):
        return (), None
    return tuple(dims), items


def _packed(flat: Sequence[Any], datatype: str, name: str) -> bytes:
    try:
        if datatype == "BYTES":
            return join_bytes([text.encode() for text in flat])
        if datatype in oip_data.FLOATS:
            flat = [float("nan") if one is None else one for one in flat]
        return pack(f"<{len(flat)}{oip_data.CODES[datatype]}", *flat)
    except (error, OverflowError, UnicodeEncodeError, KeyError):
        message = f"The upstream's output `{name[:64]}` is not {datatype}."
        raise decoding.bad_response(message) from None
