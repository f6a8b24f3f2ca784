"""The file of requests that last: what it has is exported after its process was killed."""

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.spans import MOST_SPANS, SpanLog, TraceContext
from gateway.state import journal as journal_files
from gateway.state.journal import MAGIC, framed
from gateway.telemetry.record import Record
from gateway.telemetry.traces import journal as journals
from gateway.telemetry.traces.journal import KILLED, MOST_BYTES, TraceJournal, left_traces

NOW, OFFSET = 100.0, 1e9


def opened(folder: Path, wall: Callable[[], float] = lambda: NOW + OFFSET) -> TraceJournal:
    return TraceJournal(folder, lambda: NOW, wall)


def traced(name: str = "chat", context: TraceContext | None = None) -> tuple[Record, SpanLog]:
    """A request that lasts."""
    record = Record("req_1", "chat", "", NOW - 1)
    record.model = name
    spans = record.trace.spans = SpanLog(context, NOW - 1, lambda: NOW)
    return record, spans


def kill(journal: TraceJournal) -> None:
    """End the process: its lock is released, and its file stays."""
    file = journal._file
    assert file is not None
    file._map.close()  # it has a descriptor of its own
    os.close(file._fd)


texts = st.text(max_size=60)
spans_of = st.lists(
    st.tuples(texts, st.booleans(), st.dictionaries(texts, texts | st.integers(0, 9), max_size=3)), max_size=12
)


@given(st.lists(st.tuples(spans_of, st.booleans()), max_size=8))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_request_of_a_killed_process_is_left_with_its_links(
    tmp_path: Path, requests: list[tuple[list[tuple[str, bool, dict[str, str | int]]], bool]]
) -> None:
    journal = opened(tmp_path)
    logs = []
    for children, selected in requests:
        record, spans = traced()
        journal.live.add(record)
        for name, ended, about in children:
            span = spans.begin(name, "internal", spans.spans[-1] if spans.spans else None, NOW - 0.5)
            span.attributes.update(about)
            if ended:
                span.finish(NOW - 0.25)
        if selected:
            spans.root.finish(NOW)
            journal.live.discard(record)
            journal.store(spans, selected=True)
        logs.append(spans)
    journal.write()
    assert not list(left_traces(tmp_path)), "the process lives"
    kill(journal)
    left = {trace.spans.trace_id: trace for trace in left_traces(tmp_path)}
    assert left.keys() == {spans.trace_id for spans in logs}
    assert not list(left_traces(tmp_path)), "they are read once"
    for spans in logs:
        trace = left[spans.trace_id]
        ids = [span.id for span in trace.spans.spans]
        assert ids in ([span.id for span in spans.spans], [spans.root_id])
        assert trace.ended == NOW + OFFSET
        for span, original in zip(trace.spans.spans, spans.spans, strict=False):
            assert (span.parent, span.name, span.kind) == (original.parent, original.name, original.kind)
            assert span.error == ("" if original.end else KILLED)
            assert span.end == pytest.approx((original.end or NOW) + OFFSET, abs=1e-3)


def test_requests_that_end_leave_nothing_and_those_that_last_move_to_the_next_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "LARGEST", 1 << 14)
    journal = opened(tmp_path)
    _, lasting = traced()
    assert lasting.root
    journal.store(lasting, selected=False)
    for _ in range(200):
        record, spans = traced()
        journal.live.add(record)
        assert spans.root
        journal.store(spans, selected=False)
        journal.live.discard(record)
        journal.free(spans)
        journal.free(spans)
    [path] = tmp_path.iterdir()
    assert path.stat().st_size == 1 << 14
    kill(journal)
    assert [left.spans.trace_id for left in left_traces(tmp_path)] == [lasting.trace_id]


def test_requests_beyond_the_bound_are_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "MOST_ENTRIES", 256)
    journal = opened(tmp_path)
    logs = [traced()[1] for _ in range(300)]
    for spans in logs:
        assert spans.root
        journal.store(spans, selected=False)
    journal.free(logs[7])
    journal.store(logs[299], selected=False)
    kill(journal)
    left = {left.spans.trace_id for left in left_traces(tmp_path)}
    assert left == {spans.trace_id for spans in (*logs[:7], *logs[8:256], logs[299])}


def test_a_request_with_many_spans_has_its_own_at_least(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    record, spans = traced("m" * 100, TraceContext(b"t" * 16, b"parent##", True, "vendor=1"))
    for _ in range(MOST_SPANS):
        spans.begin("step" * 20, "internal", None, NOW).attributes["x"] = "y" * MOST_BYTES
    journal.live.add(record)
    journal.write()
    kill(journal)
    [left] = left_traces(tmp_path)
    assert [span.id for span in left.spans.spans] == [spans.root_id]
    assert (left.spans.trace_id, left.spans.state, left.spans.sampled) == (b"t" * 16, "vendor=1", True)
    assert left.spans.spans[0].parent == b"parent##"


def test_a_full_disk_costs_the_traces_of_a_killed_process_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(journal_files, "_CHUNK", 64)
    journal = opened(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)
        for _ in range(3):
            journal.live.add(traced()[0])
            journal.write()
    assert caplog.text.count("No space left") == 1
    assert not list(tmp_path.iterdir())
    journal.write()
    kill(journal)
    assert len(list(left_traces(tmp_path))) == 3


def test_the_file_of_an_earlier_release_is_read(tmp_path: Path) -> None:
    earlier = Path(__file__).with_name("earlier.gz")
    (tmp_path / "x.traces").write_bytes(gzip.decompress(earlier.read_bytes()))
    lasted, selected = left_traces(tmp_path)
    assert [span.name for span in lasted.spans.spans] == ["chat chat", "attempt"]
    assert [span.error for span in lasted.spans.spans] == [KILLED, KILLED]
    assert (lasted.spans.trace_id, lasted.spans.state, lasted.ended) == (b"1" * 16, "vendor=1", NOW + OFFSET)
    assert (selected.spans.trace_id, lasted.selected, selected.selected) == (b"2" * 16, False, True)
    assert not list(left_traces(tmp_path))


def test_a_process_that_stops_leaves_no_file(tmp_path: Path) -> None:
    opened(tmp_path).close()
    assert not list(tmp_path.iterdir())


@given(st.lists(st.binary(min_size=1, max_size=60)), st.binary(max_size=6000), st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_file_fails_the_reader(tmp_path: Path, records: list[bytes], data: bytes, begins: bool) -> None:
    (tmp_path / "x.journal").write_bytes(MAGIC + b"".join(map(framed, records)))
    (tmp_path / "x.traces").write_bytes((b"hdrtrc01" + bytes(4088)) * begins + data)
    list(left_traces(tmp_path))
    assert not list(tmp_path.iterdir())
