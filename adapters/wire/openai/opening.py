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
    return all(map(_has_nothing, chunk.choices))


def _has_nothing(choice: _Choice) -> bool:
    values = [choice.text, choice.finish_reason]
    values += [value for name, value in (choice.delta or {}).items() if name != "role"]
    return all(bytes(value) in _EMPTY for value in values)
