"""The order in which the lines of a batch run: by model and start of the prompt, so that prefix caches and batchers
gain. The functions work on packed entries, so that another process may run them on large files."""

import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from policies.batches.lines import MOST_PROBLEMS, TOO_LONG, LineProblem, examine

_ENTRY = struct.Struct(">8s8sIQI")
_ID = struct.Struct(">16sI")
SIZE = _ENTRY.size
SHARD_LINES = 500
"""Lines of one unit of work, which one process runs and another takes over."""


class LineEntry(NamedTuple):
    """The place of a line in the input file. A `length` of 0 marks a line that is too long."""

    number: int
    offset: int
    length: int


class ExaminedLines(NamedTuple):
    """The results for a part of a file: packed entries and ids, and the first problems."""

    entries: bytes
    ids: bytes
    lines: int
    tokens: int
    problems: tuple[LineProblem, ...]


def too_long_entry(number: int, offset: int) -> bytes:
    """The entry of a line that is too long to be read."""
    return _ENTRY.pack(b"\xff" * 8, b"\xff" * 8, number, offset, TOO_LONG)


def examine_lines(data: bytes, endpoint: str, first: int, offset: int) -> ExaminedLines:
    """Examine whole lines that begin at `offset` of the file, with the number `first`. Blank lines are skipped."""
    entries, ids, problems = list[bytes](), list[bytes](), list[LineProblem]()
    number, at, tokens = first, 0, 0
    for raw in data.splitlines(keepends=True) if b"\r" not in data else _lines(data):
        length = len(raw.rstrip(b"\r\n"))
        if raw.strip():
            facts = examine(raw, endpoint, number)
            entries.append(_ENTRY.pack(facts.model_hash, facts.prefix_hash, number, offset + at, length))
            if facts.id_hash:
                ids.append(_ID.pack(facts.id_hash, number))
            if facts.problem is not None and len(problems) < MOST_PROBLEMS:
                problems.append(facts.problem)
            tokens += facts.tokens
        number += 1
        at += len(raw)
    return ExaminedLines(b"".join(entries), b"".join(ids), number - first, tokens, tuple(problems))


def _lines(data: bytes) -> list[bytes]:
    """Lines that end with a line feed alone: a carriage return may stand inside of a line."""
    return [line + b"\n" for line in data.removesuffix(b"\n").split(b"\n")]


def arranged(entries: bytes, ids: bytes) -> tuple[bytes, tuple[LineProblem, ...]]:
    """The entries in the order of execution, and the problems of ids that occur twice."""
    ordered = b"".join(sorted(entries[at : at + SIZE] for at in range(0, len(entries), SIZE)))
    pairs = sorted(_ID.unpack_from(ids, at) for at in range(0, len(ids), _ID.size))
    twice = sorted((second, first) for (id_, first), (same, second) in pairwise(pairs) if id_ == same)
    problems = [
        LineProblem("duplicate_custom_id", f"`custom_id` is that of line {first} already.", second, "custom_id")
        for second, first in twice[:MOST_PROBLEMS]
    ]
    return ordered, tuple(problems)


def entries_of(packed: bytes) -> Iterator[LineEntry]:
    """The entries of a part of an order."""
    for _, _, number, offset, length in _ENTRY.iter_unpack(packed):
        yield LineEntry(number, offset, length)


def shards_of(lines: int) -> int:
    """The number of shards of a batch."""
    return -(-lines // SHARD_LINES)


def shard_range(number: int) -> tuple[int, int]:
    """The first byte of a shard in the order, and its longest length."""
    return number * SHARD_LINES * SIZE, SHARD_LINES * SIZE
