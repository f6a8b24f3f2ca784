"""Cache keys: two requests have equal parts only if no upstream can distinguish them."""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Raw

from adapters.requests import GenerateRequest
from adapters.tensors import Data

FORMATTED: Final = 64 * 1024
"""Bytes of a value up to which white space is normalised. A larger value is compared unchanged, without a copy."""
_IGNORED = frozenset({"metadata", "prompt_cache_key", "safety_identifier", "stream", "user"})
"""Fields about the client and its accounting, which do not affect a response."""
_NULL = Raw(b"null")

_encode = msgspec.json.Encoder().encode
_number = msgspec.json.Decoder(float | None)


def canonical(request: GenerateRequest) -> tuple[Data, ...]:
    """Return the parts of a request that affect its response.

    White space, the order of the top-level fields, nulls and fields about the client are ignored. The bytes of a
    field's value are compared: numbers are not rounded and keys are not sorted, so some equivalent requests have
    different parts.
    """
    return parts_of((request.path, request.stream), request.fields)


def parts_of(kind: tuple[object, ...], fields: Mapping[str, Raw]) -> tuple[Data, ...]:
    """Return the parts of a body's fields. `kind` distinguishes requests with the same fields.

    The first part has the name and the length of each value, so that the boundaries of values are unambiguous.
    """
    names = sorted(name for name, raw in fields.items() if name not in _IGNORED and raw != _NULL)
    values = [_value(fields[name]) for name in names]
    lengths = [len(value) for value in values]
    return (_encode((kind, names, lengths)), *values)


def _value(raw: Raw) -> Data:
    view = memoryview(raw)
    return view if len(view) > FORMATTED else msgspec.json.format(bytes(view), indent=-1)


def is_deterministic(request: GenerateRequest) -> bool:
    """Whether equal requests have equal responses: a request demands the most likely tokens, or has a seed."""
    return is_certain(request.fields)


def is_certain(fields: Mapping[str, Raw]) -> bool:
    """Whether equal fields have equal responses."""
    if fields.get("seed", _NULL) != _NULL:
        return True
    try:
        return bool(_number.decode(fields.get("temperature", _NULL)) == 0)
    except msgspec.DecodeError:  # the upstream rejects the value
        return False
