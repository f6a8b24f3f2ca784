"""The file of requests that last: what it has is exported after its process was killed."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.spans import MOST_SPANS, SpanLog, TraceContext
from gateway.telemetry.record import Record
from gateway.telemetry.traces import journal as journals
from gateway.telemetry.traces.journal import KILLED, MOST_SLOTS, SLOT, TraceJournal, left_traces

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
    for mapped in (journal._page, *journal._chunks):
        mapped.close()  # each has a descriptor of its own
    os.close(journal._fd)


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


def test_requests_that_end_leave_nothing(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    for _ in range(3 * MOST_SLOTS // 2):
        record, spans = traced()
        journal.live.add(record)
        journal.store(spans, selected=False)
        journal.live.discard(record)
        journal.free(spans)
        journal.free(spans)
    assert os.fstat(journal._fd).st_size < 1 << 20, "slots are used again"
    kill(journal)
    assert not list(left_traces(tmp_path))


def test_requests_beyond_the_bound_are_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "MOST_SLOTS", 256)
    journal = opened(tmp_path)
    logs = [traced()[1] for _ in range(300)]
    for spans in logs:
        assert spans.root
        journal.store(spans, selected=False)
    assert [spans.slot for spans in logs[256:]] == [-1] * 44
    journal.free(logs[7])
    journal.store(logs[299], selected=False)
    assert logs[299].slot >= 0
    kill(journal)
    assert len(list(left_traces(tmp_path))) == 256


def test_a_request_with_many_spans_has_its_own_at_least(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    record, spans = traced("m" * 100, TraceContext(b"t" * 16, b"parent##", True, "vendor=1"))
    for _ in range(MOST_SPANS):
        spans.begin("step" * 20, "internal", None, NOW).attributes["x"] = "y" * SLOT
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
    journal = opened(tmp_path)

    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    for _ in range(3):
        journal.live.add(traced()[0])
    journal.write()
    assert caplog.text.count("No space left") == 1
    kill(journal)
    assert not list(left_traces(tmp_path))


def test_a_process_that_stops_leaves_no_file(tmp_path: Path) -> None:
    opened(tmp_path).close()
    assert not list(tmp_path.iterdir())


@given(st.binary(max_size=6000), st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_file_fails_the_reader(tmp_path: Path, data: bytes, begins: bool) -> None:
    head = b"hdrtrc01" + bytes(4088) if begins else b""
    (tmp_path / "x.traces").write_bytes(head + data)
    list(left_traces(tmp_path))
    assert not list(tmp_path.iterdir())
