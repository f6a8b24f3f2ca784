"""Files of counters. The process that counts maps its file into memory, so that a count is an addition, and the counts
survive the end of the process. Readers read the file as it is: counters only grow.

    file = one page: magic, hour (Unix time // 3600); then slots
    slot = length of the labels, labels (a JSON array), padding, counters (int64 each)
"""

import fcntl
import mmap
import os
import struct
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from adapters.wire.decoding import MALFORMED_JSON
from gateway.features.usage.labels import COUNTERS, UsageLabels, UsageRow

SUFFIX = ".usage"
SLOT = 1024
MOST_SLOTS = 16_384
MOST_LABEL_BYTES = SLOT - 4 - 8 * len(COUNTERS)
_PAGE = 4096
_CHUNK = 256 * SLOT
_HEADER = struct.Struct("<8sq")
_MAGIC = b"hdrusg01"
_LENGTH = struct.Struct("<I")
_COUNTERS = struct.Struct(f"={len(COUNTERS)}q")
_labels = msgspec.json.Decoder(UsageLabels)


class FileFull(Exception):
    """There is no space for another slot."""


class CounterFile:
    """The file of one process and one hour. It is locked while the process lives."""

    def __init__(self, folder: Path, hour: int, process: str) -> None:
        """`process` begins the name of the file. Raises `OSError`."""
        self.hour = hour
        self._chunks: list[mmap.mmap] = []
        self._slots = 0
        self._path = folder / f"{process}-{hour}-{uuid.uuid4().hex[:8]}{SUFFIX}"
        new = self._path.with_suffix(".new")
        self._fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            os.posix_fallocate(self._fd, 0, _PAGE)
            os.pwrite(self._fd, _HEADER.pack(_MAGIC, hour), 0)
            os.rename(new, self._path)  # locked from the first moment that readers can see it
        except BaseException:
            os.close(self._fd)
            new.unlink(missing_ok=True)
            raise

    def add_slot(self, labels: UsageLabels, *, is_summary: bool = False) -> "memoryview[int]":
        """The counters of new labels, all 0. A summary may exceed `MOST_SLOTS`. Raises `FileFull` and `OSError`."""
        encoded = msgspec.json.encode(labels)
        if (self._slots >= MOST_SLOTS and not is_summary) or len(encoded) > MOST_LABEL_BYTES:
            raise FileFull
        at = self._slots * SLOT % _CHUNK
        if not at:
            # Allocated, not only extended: a write into a mapping of a full disk would end the process.
            offset = _PAGE + len(self._chunks) * _CHUNK
            os.posix_fallocate(self._fd, offset, _CHUNK)
            self._chunks.append(mmap.mmap(self._fd, _CHUNK, offset=offset))
        chunk = self._chunks[-1]
        chunk[at + _LENGTH.size : at + _LENGTH.size + len(encoded)] = encoded
        chunk[at : at + _LENGTH.size] = _LENGTH.pack(len(encoded))
        self._slots += 1
        end = at + SLOT
        return memoryview(chunk)[end - _COUNTERS.size : end].cast("q")

    def close(self) -> None:
        """Unlock the file: a reader writes the rest to the database and deletes it."""
        os.close(self._fd)


class CountedFile(NamedTuple):
    """A file as a reader has it."""

    path: Path
    hour: int
    rows: list[UsageRow]
    is_final: bool
    """Whether the process that counted has ended, so that the file does not change any more."""

    @property
    def source(self) -> str:
        """The name of the file in the database."""
        return self.path.stem


def read_files(folder: Path) -> Iterator[CountedFile]:
    """Read every file of a folder. Files of other users, and files without counters, are skipped."""
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # another reader was faster
            continue
        try:
            if os.fstat(fd).st_uid != os.geteuid():  # in a shared folder, another user could forge usage
                continue
            is_final = _is_unlocked(fd)  # before the data is read: afterwards it could still grow
            with open(fd, "rb", closefd=False) as file:
                data = file.read()
        finally:
            os.close(fd)
        if len(data) < _PAGE or data[:8] != _MAGIC:
            continue
        yield CountedFile(path, _HEADER.unpack_from(data)[1], list(_rows(data)), is_final)


def _is_unlocked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _rows(data: bytes) -> Iterator[UsageRow]:
    for slot, at in enumerate(range(_PAGE, len(data) - SLOT + 1, SLOT)):
        (length,) = _LENGTH.unpack_from(data, at)
        if not 0 < length <= MOST_LABEL_BYTES:
            return
        try:
            labels = _labels.decode(data[at + _LENGTH.size : at + _LENGTH.size + length])
        except MALFORMED_JSON:  # not written by a gateway of this release
            continue
        yield UsageRow(slot, labels, _COUNTERS.unpack_from(data, at + SLOT - _COUNTERS.size))
