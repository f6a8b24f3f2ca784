"""The journal of one process: a file in which it appends records, which survive a killed process.

    file   = magic, records, zeros
    record = length, CRC-32 of the payload (uint32 each), payload

The process locks its file while it lives, so that a reader of a file without a lock has all of it. An append is a copy
into mapped memory: it costs no system call, and the kernel has it whatever happens to the process. A machine that loses
its power loses the last seconds.
"""

import fcntl
import mmap
import os
import struct
import time
import uuid
import zlib
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import IO, NamedTuple

from gateway.state.private_folder import make_private

MAGIC = b"hdrjrn01"
SUFFIX = ".journal"
LARGEST = 8 * 2**20
_CHUNK = 256 * 1024
"""Bytes that are allocated at once."""
_NEW = ".new"
_FORGOTTEN = 60.0
"""Seconds after which a file without a name belongs to a process that was killed while it created it."""
_HEAD = struct.Struct("<II")
_HEAD_SIZE, _pack = _HEAD.size, _HEAD.pack  # appends are on the path of requests


class JournalFull(Exception):
    """The file has no space for the record: another file has it."""


class Journal:
    """The file of one process. Blocks for some microseconds only."""

    def __init__(self, folder: Path, largest: int = LARGEST) -> None:
        """The file has at most `largest` bytes. Raises `OSError`."""
        make_private(folder)
        self.path = folder / f"{uuid.uuid4().hex}{SUFFIX}"
        self.size = len(MAGIC)
        """Bytes up to the end of the last record."""
        self._allocated = 0
        self._largest = largest
        new = self.path.with_suffix(_NEW)
        self._fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            os.ftruncate(self._fd, largest)
            self._allocate(len(MAGIC))
            self._map = mmap.mmap(self._fd, largest)
            self._map[: len(MAGIC)] = MAGIC
            os.rename(new, self.path)  # locked from the first moment that readers can see it
        except BaseException:
            os.close(self._fd)
            new.unlink(missing_ok=True)
            raise

    def append(self, payload: bytes) -> None:
        """Append a record, which is not empty. Raises `JournalFull` and `OSError`; the file has its records then."""
        begin = self.size + _HEAD_SIZE
        if (end := begin + len(payload)) > self._allocated:
            self._allocate(end)
        # The head last: until it is there, a reader has the end of the records here.
        self._map[begin:end] = payload
        self._map[self.size : begin] = _pack(len(payload), zlib.crc32(payload))
        self.size = end

    def touch(self, now: float) -> None:
        """Set the time of the file, in Unix seconds. Raises `OSError`."""
        os.utime(self._fd, (now, now))

    def close(self) -> None:
        """Unlock the file: a reader has the rest, and deletes it."""
        self._map.close()  # it has a descriptor of its own, which has the lock too
        os.ftruncate(self._fd, self.size)
        os.close(self._fd)

    def remove(self) -> None:
        """Delete the file."""
        self.path.unlink(missing_ok=True)
        self.close()

    def _allocate(self, end: int) -> None:
        """Allocate the bytes up to an end: a write into a mapping of a full disk would end the process."""
        if end > self._largest:
            raise JournalFull
        allocated = min(-(-end // _CHUNK) * _CHUNK, self._largest)
        os.posix_fallocate(self._fd, self._allocated, allocated - self._allocated)
        self._allocated = allocated


class JournalFile(NamedTuple):
    """A file as a reader has it."""

    path: Path
    size: int
    """The bytes that it has on the disk."""
    is_final: bool
    """Whether its process has closed it, so that it does not grow any more."""

    @property
    def source(self) -> str:
        """The name of the file in a database."""
        return self.path.stem


def journals(folder: Path, suffix: str = SUFFIX) -> list[JournalFile]:
    """The files of a folder, the oldest first. Those of other users are skipped: they could be forged."""
    _forget(folder)
    present = []
    for path in folder.glob(f"*{suffix}"):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # another reader was faster
            continue
        try:
            is_final = _lock(fd, fcntl.LOCK_SH)  # before the size is read: afterwards it could still grow
            status = os.fstat(fd)
        finally:
            os.close(fd)
        if status.st_uid == os.geteuid():
            size = min(status.st_size, status.st_blocks * 512)
            present.append((status.st_mtime_ns, JournalFile(path, size, is_final)))
    return [file for _, file in sorted(present)]


def records_of(path: Path, offset: int = 0, most: int = LARGEST, magic: bytes = MAGIC) -> Iterator[tuple[int, bytes]]:
    """The whole records behind an offset, about `most` bytes of them: the offset behind each, and its payload.

    A torn or changed record ends the file. Raises `OSError`.
    """
    with path.open("rb") as file:
        if file.read(len(magic)) == magic:
            at = max(offset, len(magic))
            file.seek(at)
            for end, payload in frames(file, os.fstat(file.fileno()).st_size - at):
                yield at + end, payload
                if at + end - offset >= most:
                    return


def left_files(folder: Path, suffix: str = SUFFIX) -> Iterator[tuple[bytes, float]]:
    """The files of ended processes, and the Unix time of each. A file is deleted, and read by one process only."""
    _forget(folder)
    for path in sorted(folder.glob(f"*{suffix}")):
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:  # another process was faster
            continue
        try:
            status = os.fstat(fd)
            if status.st_uid != os.geteuid() or not _lock(fd, fcntl.LOCK_EX) or not path.exists():
                continue
            with open(fd, "rb", closefd=False) as file:
                data = file.read()
            path.unlink(missing_ok=True)
        finally:
            os.close(fd)
        yield data, status.st_mtime


def payloads(data: bytes, magic: bytes = MAGIC) -> Iterator[bytes]:
    """The payloads of a file that is read as a whole."""
    file = BytesIO(data)
    if file.read(len(magic)) == magic:
        for _, payload in frames(file, len(data) - len(magic)):
            yield payload


def framed(payload: bytes) -> bytes:
    """A record."""
    return _HEAD.pack(len(payload), zlib.crc32(payload)) + payload


def frames(file: IO[bytes], size: int) -> Iterator[tuple[int, bytes]]:
    """The whole records in the next `size` bytes: the offset behind each from here, and its payload."""
    at = 0
    while len(head := file.read(_HEAD.size)) == _HEAD.size:
        length, checksum = _HEAD.unpack(head)
        at += _HEAD.size + length
        payload = file.read(length) if length > 0 and at <= size else b""
        if not payload or len(payload) < length or zlib.crc32(payload) != checksum:
            return
        yield at, payload


def _forget(folder: Path) -> None:
    """Delete the files of processes that were killed while they created them."""
    for path in folder.glob(f"*{_NEW}"):
        try:
            status = path.stat()
            if status.st_uid == os.geteuid() and time.time() - status.st_mtime > _FORGOTTEN:
                path.unlink()
        except OSError:  # another process was faster
            continue


def _lock(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
