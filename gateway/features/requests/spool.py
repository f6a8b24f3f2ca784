"""Files of one process, where records wait for the database. They survive a killed process.

    file  = magic, then frames
    frame = length, CRC-32 (uint32 each), records (MessagePack)

The process locks its file while it appends. A reader of an unlocked file has all of it.
"""

import fcntl
import os
import struct
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from gateway.features.requests.lines import RequestLine
from gateway.state.private_folder import make_private
from gateway.state.refusals import refuse

SUFFIX = ".spool"
MARK = ".process"
LARGEST_FILE = 8 * 2**20
_MAGIC = b"hdrreq02"
_HEADER = struct.Struct("<II")
_COUNT = struct.Struct(">cI")
_LIST = b"\xdd"
"""The tag of a list of MessagePack, before its length in four bytes."""
_decode = msgspec.msgpack.Decoder(list[RequestLine]).decode
encode = msgspec.msgpack.Encoder().encode
"""Encodes a record. Records that wait as bytes cause no garbage collections."""


class SpoolFile:
    """The file in which one process appends. `append` and `close` may run in a thread."""

    def __init__(self, folder: Path, process: str | None = None) -> None:
        """`process` begins the name of the file. Raises `OSError`."""
        make_private(folder)
        self.path = folder / f"{process or uuid.uuid4().hex}-{uuid.uuid4().hex[:12]}{SUFFIX}"
        self.size = len(_MAGIC)
        new = self.path.with_suffix(".new")
        self._fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            _write(self._fd, _MAGIC)
            os.rename(new, self.path)  # locked from the first moment that readers can see it
        except BaseException:
            os.close(self._fd)
            new.unlink(missing_ok=True)
            raise

    def append(self, lines: list[bytes]) -> None:
        """Write one frame of encoded records. Raises `OSError`; the file then has no further frames."""
        payload = _COUNT.pack(_LIST, len(lines)) + b"".join(lines)
        data = _HEADER.pack(len(payload), zlib.crc32(payload)) + payload
        _write(self._fd, data)
        self.size += len(data)

    def close(self) -> None:
        """Unlock the file: a reader imports the rest and deletes it."""
        os.close(self._fd)


class ProcessMark:
    """A file that is locked while a process may have records. After that, all of them are in the spool, or lost."""

    def __init__(self, folder: Path, process: str) -> None:
        """Raises `OSError`."""
        make_private(folder)
        self._fd = os.open(folder / f"{process}{MARK}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def close(self) -> None:
        """Unlock the file: a reader compares the records with the usage, and deletes it."""
        os.close(self._fd)


def ended_processes(folder: Path) -> list[Path]:
    """The marks of this user's processes that have ended."""
    ended = []
    for path in sorted(folder.glob(f"*{MARK}")):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # another reader was faster
            continue
        try:
            if os.fstat(fd).st_uid == os.geteuid() and _is_unlocked(fd):
                ended.append(path)
        finally:
            os.close(fd)
    return ended


class SpoolFrame(NamedTuple):
    """The records of one frame, and the offset behind it."""

    end: int
    lines: list[RequestLine]


class SpooledFile(NamedTuple):
    """A file as a reader has it."""

    path: Path
    size: int
    is_final: bool
    """Whether its process has closed it, so that it does not grow any more."""
    is_own: bool
    """Whether it belongs to this user. In a shared folder, another user could forge records."""

    @property
    def source(self) -> str:
        """The name of the file in the database."""
        return self.path.stem


def spooled_files(folder: Path) -> list[SpooledFile]:
    """Every file of a folder, the oldest first."""
    present = []
    for path in folder.glob(f"*{SUFFIX}"):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # another reader was faster
            continue
        try:
            is_final = _is_unlocked(fd)  # before the size is read: afterwards it could still grow
            status = os.fstat(fd)
        finally:
            os.close(fd)
        file = SpooledFile(path, status.st_size, is_final, status.st_uid == os.geteuid())
        present.append((status.st_mtime_ns, file))
    return [file for _, file in sorted(present)]


def frames_of(path: Path, offset: int, most: int) -> Iterator[SpoolFrame]:
    """The whole frames behind an offset, about `most` bytes of them. A torn or changed frame ends the file."""
    with path.open("rb") as file:
        at = max(offset, len(_MAGIC))
        if file.read(len(_MAGIC)) != _MAGIC:
            return
        file.seek(at)
        while at - offset < most and len(header := file.read(_HEADER.size)) == _HEADER.size:
            length, checksum = _HEADER.unpack(header)
            payload = file.read(length) if length <= LARGEST_FILE * 4 else b""
            if len(payload) < length or zlib.crc32(payload) != checksum:
                return
            at += _HEADER.size + length
            try:
                lines = _decode(payload)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                refuse("requests", f"a frame of {path.name}", error)
                lines = []
            yield SpoolFrame(at, lines)


def single(frame: SpoolFrame) -> list[SpoolFrame]:
    """The lines of a frame, each as a frame that ends at a byte inside of it: a line may be refused, and not others."""
    first = frame.end - len(frame.lines) + 1
    return [SpoolFrame(first + at, [line]) for at, line in enumerate(frame.lines)]


def _is_unlocked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
