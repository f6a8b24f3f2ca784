"""Reads the records of a folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from gateway.features.recording.entries import (
    Content,
    ContentsFrame,
    EntriesFrame,
    Holder,
    PolicyFrame,
    RecordEntry,
    decode,
)
from gateway.features.recording.folder import segments
from gateway.features.recording.keys import RecordError, RecordKey
from gateway.features.recording.segments import CONTENTS, ENTRIES, POLICY, SegmentReader


class RecordedRequest(NamedTuple):
    """One entry with its client, and the policy under which it was decided."""

    entry: RecordEntry
    holder: Holder
    policy: PolicyFrame
    content: Content | None = None


class Records:
    """The records of a folder, in the order of the segments' starts. Reads one frame at a time."""

    def __init__(self, folder: Path, key: RecordKey, *, contents: bool = False) -> None:
        """Raises `RecordError` for a folder without segments."""
        self._key = key
        self._contents = contents
        self._skip = frozenset() if contents else frozenset({CONTENTS})
        self.paths = segments(folder)
        self.size = 0
        self.read = 0
        """Bytes of the segments that have been read."""
        for path in self.paths:
            self.size += path.stat().st_size
        if not self.paths:
            raise RecordError(f"{folder}: has no records")
        self.torn: dict[str, int] = {}
        """Segments that are not closed: their names, and the bytes after the last whole frame."""

    def __iter__(self) -> Iterator[RecordedRequest]:
        """Raises `RecordError` for a segment that cannot be read."""
        for path in self.paths:
            yield from self.segment(path)
            self.read += path.stat().st_size

    def segment(self, path: Path) -> Iterator[RecordedRequest]:
        """The records of one segment, in the order of their ends. Raises `RecordError`."""
        reader = SegmentReader(path, self._key)
        policy: PolicyFrame | None = None
        contents: dict[int, Content] = {}
        try:
            for kind, data in reader.frames(self._skip):
                if kind == POLICY:
                    policy = decode(data, PolicyFrame)
                elif kind == CONTENTS and self._contents:
                    contents |= {content.number: content for content in decode(data, ContentsFrame).contents}
                elif kind == ENTRIES and policy is not None:
                    frame = decode(data, EntriesFrame)
                    for entry in frame.entries:
                        holder = frame.holders[entry.holder]
                        yield RecordedRequest(entry, holder, policy, contents.pop(entry.number, None))
        except msgspec.MsgspecError as error:
            raise RecordError(f"{path.name}: another version wrote it: {error}") from None
        if not reader.is_closed:
            self.torn[path.name] = reader.torn
