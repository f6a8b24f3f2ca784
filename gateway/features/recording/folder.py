"""The segments of a folder, which several processes may write to at the same time."""

import os
import secrets
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from gateway.features.recording.segments import KEY_SUFFIX, SUFFIX, key_path, remove_segment
from gateway.state.private_folder import make_private

OPEN_SECONDS = 60.0
"""Seconds after its last write in which a segment may still be written, so that no other process deletes it for its
size."""
OLDEST_SHARE = 16
"""A segment has at most this part of the folder's bound."""


def new_path(folder: Path, now: float) -> Path:
    """The path of a new segment. Names sort by time. Raises `OSError`."""
    make_private(folder)
    return folder / f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(now))}-{secrets.token_hex(6)}{SUFFIX}"


def segments(folder: Path) -> list[Path]:
    """The segments in the order of their start."""
    return sorted(folder.glob(f"*{SUFFIX}"))


def sweep(folder: Path, keep: float, most: int, now: float, own: Iterable[Path] = ()) -> int:
    """Delete segments that are too old, then the oldest ones until the folder has at most `most` bytes.

    `own` are open segments of this process. Returns the number of deleted segments. Raises `OSError`.
    """
    own, deleted = set(own), 0
    files = sorted(_states(folder), key=lambda entry: entry[1])
    total = sum(size for _, _, size in files)
    for path, written, size in files:
        too_old = now - written > keep
        too_much = total > most and now - written > OPEN_SECONDS
        if path not in own and (too_old or too_much):
            remove_segment(path)
            total -= size
            deleted += 1
    for key in folder.glob(f"*{KEY_SUFFIX}"):
        if not key.with_suffix(SUFFIX).exists() and _age(key, now) > OPEN_SECONDS:
            key.unlink(missing_ok=True)
    return deleted


def _states(folder: Path) -> Iterator[tuple[Path, float, int]]:
    """Path, time of the last write, and bytes with the key file, of each segment."""
    for path in segments(folder):
        try:
            state = path.stat()
            yield path, state.st_mtime, state.st_size + key_path(path).stat().st_size
        except FileNotFoundError:  # another process has deleted the key, or the segment
            if path.exists():
                yield path, 0.0, 0


def _age(path: Path, now: float) -> float:
    try:
        return now - os.stat(path).st_mtime
    except FileNotFoundError:
        return 0.0
