"""Segments: files of encrypted frames.

A segment begins with `MAGIC`. Each frame is a head (kind, length), then its compressed content, encrypted with the
segment's key. The nonce is the number of the frame; the head is authenticated with the content. So a frame cannot be
altered, moved or left out unnoticed. Only the end of a segment may be missing, as after a crash: a segment that was
closed ends with an `END` frame.
"""

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gateway.features.recording.keys import NONCE, KeyFile, RecordError, RecordKey, read_key_file, write_key_file

MAGIC = b"headrace record 1\n"
SUFFIX, KEY_SUFFIX = ".segment", ".key"
POLICY, ENTRIES, CONTENTS, END = range(4)
_HEAD = struct.Struct("<BI")
TAG = 16
_FASTEST = 1
MOST_FRAME = 2**31
"""Most bytes of a frame."""


class SegmentFrame(NamedTuple):
    """One frame. `content` is empty for a kind that the reader skips."""

    kind: int
    content: bytes


def key_path(segment: Path) -> Path:
    """The key file of a segment."""
    return segment.with_suffix(KEY_SUFFIX)


class SegmentWriter:
    """Appends frames to a new segment. Raises `OSError`; the file then ends with its last whole frame."""

    def __init__(self, path: Path, key: RecordKey) -> None:
        self.path = path
        self.size = 0
        secret = os.urandom(32)
        self._cipher = AESGCM(secret)
        self._number = 0
        write_key_file(key_path(path), key.wrap(path.stem, secret))
        self._fd = -1
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            self._append(MAGIC)
        except BaseException:
            self._close()
            remove_segment(path)
            raise

    def write(self, kind: int, content: bytes) -> None:
        """Append a frame. After an error no part of it remains in the file."""
        packed = zlib.compress(content, _FASTEST)
        head = _HEAD.pack(kind, len(packed) + TAG)
        self._append(head + self._cipher.encrypt(_nonce(self._number), packed, head))
        self._number += 1

    def _append(self, data: bytes) -> None:
        written = 0
        try:
            while written < len(data):
                written += os.write(self._fd, memoryview(data)[written:])
        except OSError:
            if written:
                os.ftruncate(self._fd, self.size)
                os.lseek(self._fd, self.size, os.SEEK_SET)
            raise
        self.size += written

    def close(self) -> None:
        """Mark the end, and close the file."""
        try:
            if self._fd >= 0:
                self.write(END, b"")
        finally:
            self._close()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class SegmentReader:
    """Reads the frames of a segment in order, up to a torn frame."""

    def __init__(self, path: Path, key: RecordKey) -> None:
        """Raises `RecordError`."""
        self.path = path
        self.is_closed = False
        """Whether the end was read: the segment is whole."""
        self.torn = 0
        """Bytes after the last whole frame."""
        self._cipher = AESGCM(key.unwrap(path.stem, read_key_file(key_path(path))))

    def frames(self, skip: frozenset[int] = frozenset()) -> Iterator[SegmentFrame]:
        """Raises `RecordError` for an altered frame."""
        try:
            with self.path.open("rb") as file:
                yield from self._frames(file, os.fstat(file.fileno()).st_size, skip)
        except OSError as error:
            raise RecordError(f"{self.path}: {error.strerror}") from None

    def _frames(self, file: IO[bytes], size: int, skip: frozenset[int]) -> Iterator[SegmentFrame]:
        magic = file.read(len(MAGIC))
        if magic != MAGIC:
            if MAGIC.startswith(magic):
                self.torn = len(magic)
                return
            raise RecordError(f"{self.path.name}: is not a segment of records")
        at, number = len(MAGIC), 0
        while len(head := file.read(_HEAD.size)) == _HEAD.size:
            kind, length = _HEAD.unpack(head)
            if at + _HEAD.size + length > size or length < TAG:
                break
            if kind in skip:
                file.seek(length, os.SEEK_CUR)
                yield SegmentFrame(kind, b"")
            else:
                content = self._opened(number, head, file.read(length), at)
                if kind == END:
                    self.is_closed = True
                    return
                yield SegmentFrame(kind, content)
            at, number = at + _HEAD.size + length, number + 1
        self.torn = size - at

    def _opened(self, number: int, head: bytes, data: bytes, at: int) -> bytes:
        try:
            return zlib.decompress(self._cipher.decrypt(_nonce(number), data, head))
        except (InvalidTag, zlib.error):
            raise RecordError(f"{self.path.name}: the frame at byte {at} is altered") from None


def rewrap(segment: Path, old: RecordKey, new: RecordKey) -> None:
    """Encrypt the key of a segment under another configured key. Raises `RecordError` and `OSError`."""
    path = key_path(segment)
    stored: KeyFile = read_key_file(path)
    if stored.secret != new.id:
        write_key_file(path, new.wrap(segment.stem, old.unwrap(segment.stem, stored)))


def remove_segment(segment: Path) -> None:
    """Delete a segment, its key first: the rest of the segment cannot be read. Raises `OSError`."""
    key_path(segment).unlink(missing_ok=True)
    segment.unlink(missing_ok=True)


def _nonce(number: int) -> bytes:
    return number.to_bytes(NONCE, "big")
