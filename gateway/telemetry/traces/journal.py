"""The requests of this process that last, in a journal that survives a killed process.

    record = id of the request's span (8 bytes), then its entry (MessagePack), or nothing: it is removed

A later record of a request replaces the earlier one. A tracer that starts reads the journals of ended processes,
exports their traces, and deletes them. So the trace of a request that ended with its process is exported too, with the
ids that its servers have received.
"""

import logging
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from adapters.spans import SpanLog, TraceContext
from adapters.wire import spans as wire
from gateway.state.journal import Journal, JournalFull, left_files, payloads
from gateway.telemetry.record import Record

INTERVAL = 0.5
"""Seconds between two writes: shorter requests are not in the file, unless their trace waits for the collector."""
MOST_BYTES = 2044
"""Bytes of an entry."""
MOST_ENTRIES = 4096
LARGEST = 2 * MOST_ENTRIES * (MOST_BYTES + 16)
"""Bytes of a file: the entries, and as many that are replaced or removed."""
MOST_WRITTEN = 256
"""Entries of one write: some milliseconds of the event loop."""
KILLED = "process_killed"
"""The error of the spans that ended with their process."""
_ID = 8

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
    """The journal of one process. Without space it has no requests; nothing else fails."""

    def __init__(self, folder: Path, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        """Raises `OSError`."""
        self.live: set[Record] = set()
        """Traced requests that have not ended."""
        self._clock = clock
        self._wall = wall
        self._folder = folder
        self._entries: dict[bytes, bytes] = {}
        """The records in the file, by the id of their span."""
        self._file: Journal | None = Journal(folder, largest=LARGEST)
        self._failing = False

    def write(self) -> None:
        """Write the requests that are not in the file as they are, and the time."""
        changed = [record for record in self.live if _is_changed(record)]
        for record in changed[:MOST_WRITTEN]:
            spans = record.trace.spans
            assert spans is not None
            spans.root.name = f"{record.operation} {record.model}" if record.model else record.operation
            spans.root.attributes |= _about(record)
            for span in spans.spans:
                span.describe(spans)
            self.store(spans, selected=False)
        if self._file is None:
            self._begin()
        if self._file is not None:
            self._file.touch(self._wall())

    def store(self, spans: SpanLog, *, selected: bool) -> None:
        """Write a request whose spans are described."""
        offset = self._wall() - self._clock()
        reported = [wire.reported(span, span.id, offset) for span in spans.spans]
        runtimes = [span.runtime for span in spans.spans]
        spans.written = len(spans.spans)
        entry = JournalEntry(spans.trace_id, spans.state, spans.sampled, selected, reported, runtimes)
        data = _encode(entry)
        if len(data) > MOST_BYTES:
            for span in reported:
                span.attributes, span.events = _essential(span), []
            data = _encode(entry)
        if len(data) > MOST_BYTES:
            entry.spans, entry.runtimes = entry.spans[:1], entry.runtimes[:1]
            data = _encode(entry)
        id_ = spans.root_id
        if len(data) <= MOST_BYTES and (id_ in self._entries or len(self._entries) < MOST_ENTRIES):
            self._entries[id_] = record = id_ + data
            self._append(record)

    def free(self, spans: SpanLog) -> None:
        """Remove a request."""
        if self._entries.pop(id_ := spans.root_id, None) is not None:
            self._append(id_)

    def close(self) -> None:
        """Delete the file."""
        if self._file is not None:
            self._file.remove()
            self._file = None

    def _append(self, record: bytes) -> None:
        try:
            if self._file is not None:
                self._file.append(record)
        except JournalFull:
            self._begin()
        except OSError as error:
            self._fail(error)

    def _begin(self) -> None:
        """Write all entries to a new file, and delete the file before it."""
        try:
            file = Journal(self._folder, largest=LARGEST)
        except OSError as error:
            self._fail(error)
            return
        self.close()
        self._file, self._failing = file, False
        for record in self._entries.values():
            self._append(record)

    def _fail(self, error: OSError) -> None:
        """Delete the file, whose requests would not be removed: the next write begins another one."""
        self.close()
        if not self._failing:
            log.warning("traces: requests of a killed process would be lost: %s: %s", self._folder, error.strerror)
        self._failing = True


class LeftTrace(NamedTuple):
    """The trace of a request of a process that was killed. Its times are Unix seconds."""

    spans: SpanLog
    ended: float
    """The last moment at which the process lived."""
    selected: bool
    """Whether the process has selected it. If not, the request ended with the process."""


def left_traces(folder: Path) -> Iterator[LeftTrace]:
    """The traces in the files of killed processes, which are deleted. A file is read by one process only."""
    for data, ended in left_files(folder):
        yield from _traces({payload[:_ID]: payload[_ID:] for payload in payloads(data)}.values(), ended)
    for data, _ in left_files(folder, ".traces"):
        if len(data) >= _OLD_PAGE and data.startswith(b"hdrtrc01"):
            yield from _traces(_slots(data), *struct.unpack_from("<d", data, 8))


_OLD_PAGE, _OLD_SLOT = 4096, 2048


def _slots(data: bytes) -> Iterator[bytes]:
    """The entries of a file of an earlier release: one page, then slots of a length and an entry."""
    for at in range(_OLD_PAGE, len(data) - _OLD_SLOT + 1, _OLD_SLOT):
        (length,) = struct.unpack_from("<I", data, at)
        yield data[at + 4 : at + 4 + min(length, _OLD_SLOT - 4)]


def _traces(entries: Iterable[bytes], ended: float) -> Iterator[LeftTrace]:
    for data in entries:
        try:
            entry = _decode(data)
        except msgspec.DecodeError:  # it is removed, or not written by a gateway of this release
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
