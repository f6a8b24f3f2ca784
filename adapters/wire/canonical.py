"""When two requests ask for the same: one text for both."""

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
    fields = {
        name: raw for name, raw in sorted(request.fields.items()) if name not in _BOOKKEEPING and bytes(raw) != b"null"
    }
    kind = (request.path, request.stream)
    return _encode(kind) + msgspec.json.format(_encode(fields), indent=-1)


def is_deterministic(request: GenerateRequest) -> bool:
    """Whether the client asked for one certain answer: the likeliest tokens, or a seed."""
    seed = request.fields.get("seed")
    if seed is not None and bytes(seed) != b"null":
        return True
    temperature = request.fields.get("temperature", Raw(b"null"))
    try:
        return bool(_number.decode(temperature) == 0)
    except msgspec.DecodeError:  # the upstream will say so
        return False
