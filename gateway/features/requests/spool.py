"""The files where ended requests wait for the database: a journal for each process of the host.

A record of a journal is one request (MessagePack). Files of earlier releases (`.spool`) have several in each record.
"""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from gateway.features.requests.lines import RequestLine
from gateway.state.journal import JournalFile, journals, records_of
from gateway.state.private_folder import make_private
from gateway.state.refusals import refuse

MARK = ".process"
_EARLIER = ".spool"
_EARLIER_MAGIC = b"hdrreq02"
encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(RequestLine).decode
_decode_several = msgspec.msgpack.Decoder(list[RequestLine]).decode


class WaitingLine(NamedTuple):
    """The record of a request, and the offset behind it."""

    end: int
    line: RequestLine


def waiting_files(folder: Path) -> list[JournalFile]:
    """The files of a folder, the oldest first."""
    return [*journals(folder, _EARLIER), *journals(folder)]


def lines_of(file: JournalFile, offset: int, most: int) -> Iterator[WaitingLine]:
    """The whole lines behind an offset, about `most` bytes of them. Raises `OSError`."""
    is_earlier = file.path.suffix == _EARLIER
    for end, payload in records_of(file.path, offset, most, *((_EARLIER_MAGIC,) if is_earlier else ())):
        try:
            lines = _decode_several(payload) if is_earlier else [_decode(payload)]
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            refuse("requests", f"a record of {file.path.name}", error)
            continue
        # Each line ends at a byte of its own: one may be refused, and not the others.
        for before, line in enumerate(lines, 1 - len(lines)):
            yield WaitingLine(end + before, line)


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
    return [file.path for file in journals(folder, MARK) if file.is_final]
