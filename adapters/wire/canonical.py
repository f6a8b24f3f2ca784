"""When two requests ask for the same: one text for both."""

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from adapters.types import GenerateRequest

# About who asks and for whose books: no answer depends on it.
_BOOKKEEPING = frozenset({"metadata", "prompt_cache_key", "safety_identifier", "stream", "user"})

_encode = msgspec.json.Encoder().encode
_number = msgspec.json.Decoder(float | None)


def canonical(request: GenerateRequest) -> bytes:
    """The same for two requests only if an upstream cannot tell them apart.

    White space, the order of the top-level fields, nulls and who asks make no difference. What stands inside a
    field is compared as it was written: numbers are not rounded and keys not sorted, so some equals go unseen.
    """
    return text((request.path, request.stream), request.fields)


def text(kind: tuple[object, ...], fields: Mapping[str, Raw]) -> bytes:
    """The same, of a body's fields and what else tells two requests apart."""
    told = {name: raw for name, raw in sorted(fields.items()) if name not in _BOOKKEEPING and bytes(raw) != b"null"}
    return _encode(kind) + msgspec.json.format(_encode(told), indent=-1)


def is_deterministic(request: GenerateRequest) -> bool:
    """Whether the client asked for one certain answer: the likeliest tokens, or a seed."""
    return is_certain(request.fields)


def is_certain(fields: Mapping[str, Raw]) -> bool:
    """The same, of a body's fields."""
    seed = fields.get("seed")
    if seed is not None and bytes(seed) != b"null":
        return True
    temperature = fields.get("temperature", Raw(b"null"))
    try:
        return bool(_number.decode(temperature) == 0)
    except msgspec.DecodeError:  # the upstream will say so
        return False
