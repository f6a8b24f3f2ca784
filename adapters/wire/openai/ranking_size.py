"""The size of a request to rerank, score or classify: its rows, and an estimate of its tokens.

Bodies are forwarded unchanged to servers of several kinds, so a value that this module cannot read is the server's to
refuse. Only too many entries are refused here, before anything is built of them.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Raw

from adapters.errors import CallerError
from adapters.types import BYTES_PER_TOKEN

MAX_ROWS = 10_000
"""Documents of one request, as at Cohere."""
_MAX_PARTS = 64 * MAX_ROWS
"""Values and brackets that are read to count the entries of a list."""
_PART = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},]', re.DOTALL)
_PAIRS = (
    ("query", "documents"), ("query", "texts"), ("text_1", "text_2"), ("queries", "documents"), ("data_1", "data_2"),
)  # fmt: skip
_OPEN, _CLOSED = b"[{", b"]}"


class RankingSize(NamedTuple):
    """Rows are documents, pairs or texts."""

    tokens: int
    rows: int


def size_of(fields: Mapping[str, Raw]) -> RankingSize:
    """The size by the fields of a body. A query is read once with each document. Raises `CallerError`."""
    for first, second in _PAIRS:
        if first in fields and second in fields:
            left, right = _entries(fields[first], first), _entries(fields[second], second)
            rows = right if left == 1 else max(left, right)
            sizes = (len(memoryview(fields[first])) * (rows if left == 1 else 1), len(memoryview(fields[second])))
            return RankingSize(sum(sizes) // BYTES_PER_TOKEN, rows)
    given = fields.get("input", fields.get("documents"))
    if given is None:
        return RankingSize(0, 0)
    return RankingSize(len(memoryview(given)) // BYTES_PER_TOKEN, _entries(given, "input"))


def _entries(raw: Raw, name: str) -> int:
    """The entries of a list, 1 for any other value."""
    data = bytes(raw)
    if data[:1] != b"[":
        return 1
    depth, commas, filled = 0, 0, data[1:-1].strip() != b""
    for parts, match in enumerate(_PART.finditer(data)):
        part = match[0]
        if part in _OPEN:
            depth += 1
        elif part in _CLOSED:
            depth -= 1
        elif part == b"," and depth == 1:
            commas += 1
        if commas >= MAX_ROWS or parts >= _MAX_PARTS:
            raise CallerError(f"`{name}` has more than the {MAX_ROWS:,} entries that are accepted.", param=name)
    return commas + 1 if filled else 0
