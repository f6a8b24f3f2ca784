"""The requests of this process that last, in a file that survives a killed process.

    file = one page: magic, Unix seconds of the last write; then slots
    slot = length, entry (MessagePack)

The process locks its file while it lives. A tracer that starts reads the files without a lock, exports their traces,
and deletes them. So the trace of a request that ended with its process is exported too, with the ids that its servers
have received.
"""

import fcntl
import logging
import mmap
import os
import struct
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from adapters.spans import SpanLog, TraceContext
from adapters.wire import spans as wire
from gateway.telemetry.record import Record

INTERVAL = 0.5
"""Seconds between two writes: shorter requests are not in the file, unless their trace waits for the collector."""
SUFFIX = ".traces"
SLOT = 2048
MOST_SLOTS = 4096
MOST_WRITTEN = 256
"""Entries of one write: some milliseconds of the event loop."""
KILLED = "process_killed"
"""The error of the spans that ended with their process."""
_PAGE = 4096
_CHUNK = 256 * SLOT
_MAGIC = b"hdrtrc01"
_HEADER = struct.Struct("<8sd")
_LENGTH = struct.Struct("<I")

log = logging.getLogger(__name__)


class JournalEntry(msgspec.Struct, array_like=True):
    """One request."""

    trace: bytes
    state: str
    sampled: bool
    selected: bool
    """Whether the request has ended, and its trace waits for the collector."""
    spans: list[wire.ReportedSpan]
    """The span of the request, then those below it. `attempt` is the id of the span itself."""
    runtimes: list[str]
    """The address of the runtime of each span."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(JournalEntry).decode


class TraceJournal:
    """The file of one process. Without space it has fewer requests; nothing else fails."""

    def __init__(self, folder: Path, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        """Raises `OSError`."""
        self.live: set[Record] = set()
        """Traced requests that have not ended."""
        self._clock = clock
        self._wall = wall
        self._chunks: list[mmap.mmap] = []
        self._free: list[int] = []
        self._full = False
        self.path = folder / f"{uuid.uuid4().hex}{SUFFIX}"
        new = self.path.with_suffix(".new")
        self._fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            os.posix_fallocate(self._fd, 0, _PAGE)
            self._page = mmap.mmap(self._fd, _PAGE)
            _HEADER.pack_into(self._page, 0, _MAGIC, wall())
            os.rename(new, self.path)  # locked from the first moment that readers can see it
        except BaseException:
            os.close(self._fd)
            new.unlink(missing_ok=True)
            raise

    def write(self) -> None:
        """Write the requests that are not in the file as they are, and the time."""
        _HEADER.pack_into(self._page, 0, _MAGIC, self._wall())
        changed = [record for record in self.live if _is_changed(record)]
        for record in changed[:MOST_WRITTEN]:
            spans = record.trace.spans
            assert spans is not None
            spans.root.name = f"{record.operation} {record.model}" if record.model else record.operation
            spans.root.attributes |= _about(record)
            for span in spans.spans:
                span.describe(spans)
            self.store(spans, selected=False)

    def store(self, spans: SpanLog, *, selected: bool) -> None:
        """Write a request whose spans are described."""
        offset = self._wall() - self._clock()
        reported = [wire.reported(span, span.id, offset) for span in spans.spans]
        runtimes = [span.runtime for span in spans.spans]
        spans.written = len(spans.spans)
        entry = JournalEntry(spans.trace_id, spans.state, spans.sampled, selected, reported, runtimes)
        data = _encode(entry)
        if len(data) > SLOT - _LENGTH.size:
            for span in reported:
                span.attributes, span.events = _essential(span), []
            data = _encode(entry)
        if len(data) > SLOT - _LENGTH.size:
            entry.spans, entry.runtimes = entry.spans[:1], entry.runtimes[:1]
            data = _encode(entry)
        if len(data) <= SLOT - _LENGTH.size and self._has_slot(spans):
            chunk, at = self._chunks[spans.slot * SLOT // _CHUNK], spans.slot * SLOT % _CHUNK
            _LENGTH.pack_into(chunk, at, 0)  # a torn entry is none
            chunk[at + _LENGTH.size : at + _LENGTH.size + len(data)] = data
            _LENGTH.pack_into(chunk, at, len(data))

    def free(self, spans: SpanLog) -> None:
        """Remove a request."""
        if spans.slot >= 0:
            slot, spans.slot = spans.slot, -1
            _LENGTH.pack_into(self._chunks[slot * SLOT // _CHUNK], slot * SLOT % _CHUNK, 0)
            self._free.append(slot)

    def close(self) -> None:
        """Delete the file."""
        self.path.unlink(missing_ok=True)
        os.close(self._fd)

    def _has_slot(self, spans: SpanLog) -> bool:
        if spans.slot < 0 and (self._free or self._grow()):
            spans.slot = self._free.pop()
        return spans.slot >= 0

    def _grow(self) -> bool:
        """Allocate slots: a write into a mapping of a full disk would end the process."""
        size = len(self._chunks) * _CHUNK
        if self._full or size >= MOST_SLOTS * SLOT:
            return False
        try:
            os.posix_fallocate(self._fd, _PAGE + size, _CHUNK)
            self._chunks.append(mmap.mmap(self._fd, _CHUNK, offset=_PAGE + size))
        except OSError as error:
            self._full = True
            log.warning("traces: requests of a killed process would be lost: %s: %s", self.path.parent, error.strerror)
            return False
        self._free += range((size + _CHUNK) // SLOT - 1, size // SLOT - 1, -1)
        return True


class LeftTrace(NamedTuple):
    """The trace of a request of a process that was killed. Its times are Unix seconds."""

    spans: SpanLog
    ended: float
    """The last moment at which the process lived."""
    selected: bool
    """Whether the process has selected it. If not, the request ended with the process."""


def left_traces(folder: Path) -> Iterator[LeftTrace]:
    """The traces in the files of killed processes, which are deleted. A file is read by one process only."""
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:  # another process was faster
            continue
        try:
            if os.fstat(fd).st_uid != os.geteuid() or not _is_unlocked(fd) or not path.exists():
                continue
            with open(fd, "rb", closefd=False) as file:
                data = file.read(_PAGE + MOST_SLOTS * SLOT)
            path.unlink(missing_ok=True)
        finally:
            os.close(fd)
        if len(data) >= _PAGE and data[:8] == _MAGIC:
            yield from _traces(data)


def _is_unlocked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _traces(data: bytes) -> Iterator[LeftTrace]:
    _, ended = _HEADER.unpack_from(data)
    for at in range(_PAGE, len(data) - SLOT + 1, SLOT):
        (length,) = _LENGTH.unpack_from(data, at)
        if not 0 < length <= SLOT - _LENGTH.size:
            continue
        try:
            entry = _decode(data[at + _LENGTH.size : at + _LENGTH.size + length])
        except msgspec.DecodeError:
            continue
        if entry.spans and len(entry.trace) == 16:
            yield LeftTrace(_log_of(entry, ended), ended, entry.selected)


def _log_of(entry: JournalEntry, ended: float) -> SpanLog:
    root = entry.spans[0]
    spans = SpanLog(TraceContext(entry.trace, root.parent, entry.sampled, entry.state), root.start, lambda: ended)
    for reported, runtime in zip(entry.spans, entry.runtimes, strict=False):
        span = wire.span_of(reported, spans, 0.0)
        span.runtime = runtime
        if not reported.end:
            span.finish(max(ended, span.start), KILLED)
            span.describe(spans)
        spans.spans.append(span)
    return spans


def _is_changed(record: Record) -> bool:
    spans = record.trace.spans
    return spans is not None and len(spans.spans) != spans.written


def _about(record: Record) -> dict[str, str]:
    """The attributes by which the request is searched for."""
    about = {
        "headrace.operation": record.operation,
        "headrace.request_id": record.request_id,
        "headrace.tenant": record.tenant,
        "headrace.model": record.model,
    }
    return {name: value for name, value in about.items() if value}


def _essential(span: wire.ReportedSpan) -> dict[str, str | bool | int | float | list[str]]:
    names = ("headrace.request_id", "headrace.tenant", "headrace.model", "headrace.pool")
    return {name: span.attributes[name] for name in names if name in span.attributes}
