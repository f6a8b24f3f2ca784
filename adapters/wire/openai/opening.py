"""Recognises chunks that precede a model's output, such as a chunk with a role only."""

import msgspec
from msgspec import Raw

from adapters.wire import decoding

_NULL = Raw(b"null")
_EMPTY = frozenset({b"null", b'""', b"[]", b"{}"})


class _Choice(msgspec.Struct):
    delta: dict[str, Raw] | None = None
    text: Raw = _NULL
    finish_reason: Raw = _NULL


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: Raw = _NULL


_chunk = msgspec.json.Decoder(_Chunk).decode


def is_opening(data: bytes) -> bool:
    """Whether a chunk has no output, no end and no usage of its own."""
    try:
        chunk = _chunk(data)
    except decoding.MALFORMED_JSON:
        return False
    if not chunk.choices:
        return bytes(chunk.usage) in _EMPTY
    for choice in chunk.choices:
        if bytes(choice.text) not in _EMPTY or bytes(choice.finish_reason) not in _EMPTY:
            return False
        for name, value in (choice.delta or {}).items():
            if name != "role" and bytes(value) not in _EMPTY:
                return False
    return True
