"""The spans of a runtime: their bounds, and their way to the gateway."""

import asyncio
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.errors import CallerError, Overloaded
from adapters.spans import Attribute, SpanLog, TraceContext
from adapters.wire import spans as wire
from runtimes.spans import MOST_BAGGAGE, MOST_OF_ONE, SpanBuffer, phase

pytestmark = pytest.mark.plain
ids = st.binary(min_size=8, max_size=8).filter(any)
numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
values = st.text(max_size=30) | st.booleans() | numbers | st.lists(st.text(max_size=9), max_size=3).map(tuple)
attributes = st.dictionaries(st.text(min_size=1, max_size=20), values, max_size=4)
times = st.floats(0.001, 1e6)


def headers(span: bytes, **more: str) -> dict[str, str]:
    return {"traceparent": f"00-{'ab' * 16}-{span.hex()}-00", **more}


def buffer(most: int = 100) -> SpanBuffer:
    ticks = itertools.count(1)
    return SpanBuffer(lambda: float(next(ticks)), most)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.text(max_size=20), times, times, attributes, attributes), max_size=8), ids, times)
def test_spans_arrive_as_they_were_recorded(
    phases: list[tuple[str, float, float, dict[str, Attribute], dict[str, Attribute]]], attempt: bytes, offset: float
) -> None:
    log = SpanLog(TraceContext(b"t" * 16, attempt, False, ""), 1.0, lambda: 2.0)
    for name, start, end, about, event in phases:
        phase(log.root, name, start, end, about)
        log.spans[-1].event("moment", start, **{f"e.{key}": value for key, value in event.items()})
    log.root.finish(9.0, "cancelled")
    log.begin("open", "internal", None, 1.0)  # a phase that lasts is not reported
    target = SpanLog(None, 0.0, lambda: 0.0)
    for span in wire.decode(wire.encode([log], offset)):
        assert span.attempt == attempt
        wire.add(span, target, "pool", offset)
    received = [span for _, span in target.reported]
    assert len(received) == len(phases) + 1
    for sent, got in zip(log.spans, received, strict=False):
        assert (got.id, got.parent, got.name, got.kind) == (sent.id, sent.parent, sent.name, sent.kind)
        assert (got.attributes, got.error) == (sent.attributes, sent.error)
        assert [event[1:] for event in got.events] == [event[1:] for event in sent.events]
        assert got.start == pytest.approx(sent.start, abs=1e-3)
        assert got.end == pytest.approx(sent.end, abs=1e-3)


@given(st.binary(max_size=200))
def test_no_response_of_a_runtime_fails_the_gateway(body: bytes) -> None:
    try:
        decoded = wire.decode(body)
    except ValueError:
        return
    assert all(type(span) is wire.ReportedSpan for span in decoded)


@settings(max_examples=30)
@given(st.lists(ids, max_size=100), st.integers(1, 50))
def test_memory_is_bounded_and_the_latest_requests_stay(requests: list[bytes], most: int) -> None:
    spans = buffer(most)
    for span in requests:
        root = spans.begin(headers(span), "POST /x")
        assert root is not None
        spans.end(root, "")
        spans.end(root, "twice counts once")
    last = dict.fromkeys(reversed(requests[-most:]))
    reported: list[wire.ReportedSpan] = []
    every = list(dict.fromkeys(requests))
    for start in range(0, len(every), wire.MOST_IDS):
        reported += wire.decode(spans.take(b"".join(every[start : start + wire.MOST_IDS])))
    assert len(reported) <= max(most, MOST_OF_ONE)
    if len(set(requests)) == len(requests):
        assert {span.attempt for span in reported} == set(last)
    assert wire.decode(spans.take(b"".join(every[: wire.MOST_IDS]))) == [], "spans are taken once"


@pytest.mark.parametrize("body", [b"1234567", b"12345678" * (wire.MOST_IDS + 1)])
def test_other_bodies_are_refused(body: bytes) -> None:
    with pytest.raises(CallerError, match="ids of spans"):
        buffer().take(body)


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=300))
def test_baggage_becomes_bounded_attributes(baggage: str) -> None:
    root = buffer().begin(headers(b"12345678", baggage=baggage), "POST /x")
    assert root is not None
    assert len(root.attributes) <= MOST_BAGGAGE
    assert all(name.startswith("baggage.") and len(str(value)) <= 256 for name, value in root.attributes.items())


def test_members_of_baggage_are_attributes() -> None:
    root = buffer().begin(headers(b"12345678", baggage="user=42 , plan = gold;ttl=1,,=x"), "POST /x")
    assert root is not None
    assert root.attributes == {"baggage.user": "42", "baggage.plan": "gold"}


@pytest.mark.parametrize("given", [{}, {"traceparent": "nonsense"}])
def test_other_requests_have_no_span(given: dict[str, str]) -> None:
    assert buffer().begin(given, "POST /x") is None


@pytest.mark.parametrize(
    ("error", "kind"), [("", ""), (Overloaded("full"), "capacity"), (asyncio.CancelledError(), "cancelled")]
)
def test_the_error_of_a_span_is_the_class_of_the_failure(error: BaseException | str, kind: str) -> None:
    spans = buffer()
    root = spans.begin(headers(b"12345678"), "POST /x")
    assert root is not None
    spans.end(root, error)
    [span] = wire.decode(spans.take(b"12345678"))
    assert span.error == kind
