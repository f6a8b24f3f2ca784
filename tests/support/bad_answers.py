"""Generates what a broken or hostile remote system answers instead of JSON of a certain form."""

from collections.abc import Iterator
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import Raw

DEEP = b"[" * 100_000 + b"]" * 100_000
DIGITS = b"9" * 5_000
BODIES = [
    b"", b" ", b"{", b"null", b"[]", b"{}", b"0", b'"x"', b"\0", b"\xff\xfe", b"NaN", DEEP, b'{"a":' * 100_000, DIGITS,
]  # fmt: skip
VALUES = [
    b"null", b"true", b"-1", b"0.5", b"1e999", b'""', b'"x"', b'"\\u0000"', b'"\\ud800"', b'"\xff"', b'"\xc2\xb2"',
    b"[]", b"{}", b"[null]", b'{"a":[]}', b"[" * 800 + b"]" * 800, DEEP, DIGITS, b'"' + DIGITS + b'"',
]  # fmt: skip
"""JSON of each type, and texts that only look like JSON."""

Path = tuple[str | int, ...]


def bad_json(good: Any) -> st.SearchStrategy[bytes]:
    """Texts that are no JSON, cut ones, and `good` with another value, or none, at any place."""
    text, paths = msgspec.json.encode(good), list(_paths(good))
    places, values = st.sampled_from(paths), st.sampled_from(VALUES)
    changed = st.builds(lambda path, value: msgspec.json.encode(_replaced(good, path, value)), places, values)
    return st.sampled_from(BODIES) | st.integers(1, len(text) - 1).map(lambda end: text[:end]) | changed


def _paths(value: Any, path: Path = ()) -> Iterator[Path]:
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield (*path, key)
        yield from _paths(inner, (*path, key))


def _replaced(value: Any, path: Path, raw: bytes) -> Any:
    if not path:
        return Raw(raw)
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _replaced(copy[path[0]], path[1:], raw)
    return copy
