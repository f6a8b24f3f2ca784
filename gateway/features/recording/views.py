"""The recorded prompt and answer of one request, for a person who may read it."""

import calendar
import time
from pathlib import Path
from typing import Any

import msgspec

from config.schema.telemetry import RecordConfig
from gateway.features.recording.entries import Content, ContentsFrame, EntriesFrame, decode
from gateway.features.recording.segments import CONTENTS, ENTRIES, RecordError, RecordKey, SegmentReader, segments

_SLACK = 60.0
"""Seconds by which the times of a segment and of its requests may differ."""
_MOST_SHOWN = 256 * 1024
"""Bytes of a body or an answer that are shown."""


def recorded_content(config: RecordConfig, tenant: str, id: str, ended: float) -> dict[str, Any] | None:
    """What the folder of records has of a request that ended at a Unix time, as JSON; None if it has nothing. Blocks.

    A segment that another key encrypts, or that is damaged, has nothing.
    """
    key = RecordKey(config.key.get_secret_value())
    for path in segments(Path(config.to)):
        if not _may_have(path, ended):
            continue
        try:
            content = _content(path, key, tenant, id, ended)
        except (RecordError, msgspec.MsgspecError):
            continue
        if content is not None:
            return _described(content)
    return None


def _may_have(path: Path, ended: float) -> bool:
    try:
        begun = calendar.timegm(time.strptime(path.name[:15], "%Y%m%dT%H%M%S"))
        return begun - _SLACK <= ended <= path.stat().st_mtime + _SLACK
    except (ValueError, OSError):  # another file, or just deleted
        return False


def _content(path: Path, key: RecordKey, tenant: str, id: str, ended: float) -> Content | None:
    """Contents come before their entries, so the entries are read first."""
    numbers = dict[int, float]()
    for kind, data in SegmentReader(path, key).frames(frozenset({CONTENTS})):
        if kind == ENTRIES:
            frame = decode(data, EntriesFrame)
            for entry in frame.entries:
                if entry.id == id and frame.holders[entry.holder].tenant == tenant:
                    numbers[entry.number] = abs(entry.arrival / 1e9 + entry.end - ended)
    if not numbers:
        return None
    nearest = min(numbers, key=numbers.__getitem__)  # clients may choose the same id again
    for kind, data in SegmentReader(path, key).frames(frozenset({ENTRIES})):
        if kind == CONTENTS:
            for content in decode(data, ContentsFrame).contents:
                if content.number == nearest:
                    return content
    return None


def _described(content: Content) -> dict[str, Any]:
    made: dict[str, Any] = {"path": content.path, "redacted": content.redacted, "prompt": _text(content.body)}
    if content.answer is not None:
        made |= {"answer": _text(content.answer), "truncated": content.truncated}
    return made


def _text(data: bytes) -> str:
    return data[:_MOST_SHOWN].decode(errors="replace")
