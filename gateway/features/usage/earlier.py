"""Files of counters of earlier releases: `.usage`. A gateway of such a release that runs counts in its file.

file = one page: magic, hour (Unix time // 3600); then slots
slot = length of the labels, labels (a JSON array), padding, counters (int64 each)
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from adapters.wire.decoding import MALFORMED_JSON
from gateway.features.usage.labels import COUNTERS, UsageLabels, UsageRow
from gateway.state.journal import JournalFile, journals

_PAGE, _SLOT = 4096, 1024
_HEADER = struct.Struct("<8sq")
_MAGIC = b"hdrusg01"
_LENGTH = struct.Struct("<I")
_COUNTERS = struct.Struct(f"={len(COUNTERS)}q")
_labels = msgspec.json.Decoder(UsageLabels)


class CountedFile(NamedTuple):
    """A file with its counters, which only grow."""

    file: JournalFile
    hour: int
    rows: list[UsageRow]


def counted_files(folder: Path) -> Iterator[CountedFile]:
    """The files of counters in a folder."""
    for file in journals(folder, ".usage"):
        try:
            data = file.path.read_bytes()
        except FileNotFoundError:  # another reader was faster
            continue
        if len(data) >= _PAGE and data.startswith(_MAGIC):
            yield CountedFile(file, _HEADER.unpack_from(data)[1], list(_rows(data)))


def _rows(data: bytes) -> Iterator[UsageRow]:
    for slot, at in enumerate(range(_PAGE, len(data) - _SLOT + 1, _SLOT)):
        (length,) = _LENGTH.unpack_from(data, at)
        begin = at + _LENGTH.size
        if not 0 < length <= _SLOT - _LENGTH.size - _COUNTERS.size:
            return
        try:
            labels = _labels.decode(data[begin : begin + length])
        except MALFORMED_JSON:
            continue
        yield UsageRow(slot, labels, _COUNTERS.unpack_from(data, at + _SLOT - _COUNTERS.size))
