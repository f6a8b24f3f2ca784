"""The journals of a host's processes, which wait for the database. Usage and the search of requests read them.

A journal outlives its import for an hour. A database that is replaced by an older one, in a failover or from a backup,
has what it lost again: each reader compares its files with the database, and repeats those that it has no more.

A record of a journal is one request (MessagePack). Files of earlier releases (`.spool`) have several in each record,
whose usage was counted elsewhere.
"""

import fcntl
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from config.schema.config import Config
from config.schema.telemetry import RequestsConfig
from gateway.features.journal.folders import spool_of, usage_folder
from gateway.features.journal.lines import RequestLine, summed
from gateway.features.journal.tables import RETAINED
from gateway.state.journal import MAGIC, JournalFile, framed, journals, records_of
from gateway.state.refusals import refuse

Reader = Literal["usage", "requests"]
_EARLIER = ".spool"
_EARLIER_MAGIC = b"hdrreq02"
_BATCH = 2 * 2**20
"""Bytes of records of one write."""
MOST_RETAINED = 64 * 2**20
"""Bytes of imported files that are retained; beyond, the oldest are deleted."""
_BEGUN = 0o400
"""The mode of a file of which a database may have a part: it is never replaced by its sums."""
_WRITABLE = 0o200
encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(RequestLine).decode
_decode_several = msgspec.msgpack.Decoder(list[RequestLine]).decode


class WaitingLine(NamedTuple):
    """The record of a request, and the offset behind it."""

    end: int
    line: RequestLine


class WaitingFiles:
    """The files of a host. A file is deleted `retained` seconds after all of its readers have it.

    Each reader may have a thread.
    """

    def __init__(
        self, config: Callable[[], Config], retained: float = RETAINED, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._config = config
        self._retained = retained
        self._clock = clock
        self._imported_at: dict[Path, float] = {}
        self._offsets: dict[Reader, dict[Path, int]] = {"usage": {}, "requests": {}}
        """How much of each file a reader has."""
        self._whole: dict[Reader, set[Path]] = {"usage": set(), "requests": set()}
        """The files that a reader has as a whole."""

    def parts(
        self, reader: Reader, lost: Callable[[Collection[str]], Iterable[str]]
    ) -> Iterator[tuple[JournalFile, list[WaitingLine]]]:
        """The new lines of each file in batches. The reader has a batch once it requests the next one.

        `lost` returns which of these files the database of the reader has no more, as a whole or in part.
        """
        files = [file for file in self._files() if reader in self._readers(file)]
        before, whole = self._offsets[reader], self._whole[reader]
        gone = set(lost({file.source for file in files})) if before else set()
        offsets = self._offsets[reader] = {
            file.path: 0 if file.source in gone else before.get(file.path, 0) for file in files
        }
        whole.intersection_update(file.path for file in files if file.source not in gone)
        for file in files:
            if file.path in whole:
                continue
            try:
                if reader == "usage" and not _begin(file):
                    continue
                while lines := list(lines_of(file, offsets[file.path], _BATCH)):
                    yield file, lines
                    offsets[file.path] = lines[-1].end
            except FileNotFoundError:  # another gateway was faster
                continue
            if file.is_final:
                whole.add(file.path)
        self._forget(files)

    def _forget(self, files: list[JournalFile]) -> None:
        """Delete the files whose time is over, and the oldest beyond `MOST_RETAINED` bytes."""
        done = [file for file in files if all(file.path in self._whole[each] for each in self._readers(file))]
        now, size = self._clock(), sum(file.size for file in done)
        for file in done:
            if size > MOST_RETAINED or now - self._imported_at.setdefault(file.path, now) >= self._retained:
                file.path.unlink(missing_ok=True)
                size -= file.size
        present = {path for offsets in self._offsets.values() for path in offsets}
        for path in [path for path in self._imported_at if path not in present]:
            self._imported_at.pop(path, None)

    def bound(self) -> int:
        """Reduce the oldest files beyond `requests.max_waiting`. Returns the number of lost records of requests.

        Usage is not lost: such a file is replaced by its sums, or deleted if the database has its usage. A file of
        which the database may have a part stays, and so does that of a process that runs.
        """
        requests, lost = self._config().requests or RequestsConfig(), 0
        files = self._files()
        size = sum(file.size - self._imported(file) for file in files)
        for file in files:
            if size <= requests.max_waiting:
                break
            waiting = file.size - self._imported(file)
            if not file.is_final or waiting <= 0:
                continue
            try:
                lines = list(lines_of(file, self._offsets["requests"].get(file.path, 0), file.size))
                if "usage" not in self._readers(file) or file.path in self._whole["usage"]:
                    file.path.unlink()
                elif not _reduce(file):
                    continue
            except FileNotFoundError:  # another gateway was faster
                continue
            size -= waiting
            lost += sum(line.detail != "" for _, line in lines)
        return lost

    def _files(self) -> list[JournalFile]:
        config = self._config()
        folders = (spool_of(config), usage_folder(config))
        files = [*journals(folders[0], _EARLIER), *(file for folder in folders for file in journals(folder))]
        return [file for file in files if self._readers(file)]

    def _readers(self, file: JournalFile) -> list[Reader]:
        """The readers without which a file is not deleted. A file without any waits until its section is back."""
        config, readers = self._config(), list[Reader]()
        # A reload that removes `usage` leaves requests that were to be counted.
        if file.path.suffix != _EARLIER and (config.usage is not None or file.path.parent == usage_folder(config)):
            readers.append("usage")
        if config.requests is not None:
            readers.append("requests")
        return readers

    def _imported(self, file: JournalFile) -> int:
        return min((self._offsets[reader].get(file.path, 0) for reader in self._readers(file)), default=0)


def lines_of(file: JournalFile, offset: int, most: int) -> Iterator[WaitingLine]:
    """The whole lines behind an offset, about `most` bytes of them. Raises `OSError`."""
    is_earlier = file.path.suffix == _EARLIER
    for end, payload in records_of(file.path, offset, most, _EARLIER_MAGIC if is_earlier else MAGIC):
        try:
            lines = _decode_several(payload) if is_earlier else [_decode(payload)]
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            refuse("requests", f"a record of {file.path.name}", error)
            continue
        # Each line ends at a byte of its own: one may be refused, and not the others.
        for before, line in enumerate(lines, 1 - len(lines)):
            yield WaitingLine(end + before, line)


def _begin(file: JournalFile) -> bool:
    """Note that an import of a file has begun. False while another gateway replaces it. Raises `FileNotFoundError`."""
    fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            if file.is_final:
                return False
        os.fchmod(fd, _BEGUN)
    finally:
        os.close(fd)
    return True


def _reduce(file: JournalFile) -> bool:
    """Replace a file of which no database has a part by the sums of its usage, if possible. Raises `OSError`."""
    fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    new = file.path.with_suffix(".new")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.fstat(fd).st_mode & _WRITABLE:
            return False
        sums = summed(line for _, line in lines_of(file, 0, file.size))
        new.write_bytes(MAGIC + b"".join(framed(encode(line)) for line in sums))
        new.chmod(_BEGUN)
        new.rename(file.path)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True
