"""The context of traces: W3C's `traceparent` and `tracestate`."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.spans import MOST_EVENTS, MOST_SPANS, SpanLog, read_context

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@given(st.binary(min_size=16, max_size=16), st.binary(min_size=8, max_size=8), st.integers(0, 255))
def test_a_context_is_read_as_it_was_written(trace: bytes, span: bytes, flags: int) -> None:
    context = read_context(f"00-{trace.hex()}-{span.hex()}-{flags:02x}", "vendor=1")
    if not any(trace) or not any(span):
        assert context is None
        return
    assert context is not None
    assert context == (trace, span, bool(flags & 1), "vendor=1")


ALMOST = st.from_regex(r"[0-9a-fA-F]{0,2}-[0-9a-f]{31,33}-[0-9a-f]{15,17}-[0-9a-f]{0,3}(-x)?", fullmatch=True)


@given(st.text() | ALMOST)
def test_no_text_fails_and_only_valid_ones_are_contexts(text: str) -> None:
    context = read_context(text, None)
    if context is not None:
        assert re.fullmatch(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?", text.strip(" \t"))


@pytest.mark.parametrize(
    "text",
    [
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}",
    ],
)
def test_invalid_contexts_start_a_new_trace(text: str) -> None:
    assert read_context(text, None) is None


def test_a_later_version_is_read_as_the_first() -> None:
    context = read_context(f"01-{TRACE}-{SPAN}-03-future", None)
    assert context is not None
    assert context.sampled


@given(st.text())
def test_a_state_that_is_no_header_value_is_dropped(state: str) -> None:
    context = read_context(f"00-{TRACE}-{SPAN}-00", state)
    assert context is not None
    assert context.state in (state, "")
    assert "\n" not in context.state
    assert "\r" not in context.state
    assert len(context.state) <= 512


def test_headers_continue_the_trace() -> None:
    log = SpanLog(read_context(f"00-{TRACE}-{SPAN}-01", "a=b"), 1.0, lambda: 2.0)
    assert log.root.parent.hex() == SPAN
    span = log.begin("chat m", "client", None, 1.5)
    assert span.parent == log.root.id
    assert dict(log.fields(span)) == {"traceparent": f"00-{TRACE}-{span.id.hex()}-01", "tracestate": "a=b"}


def test_spans_and_events_are_bounded() -> None:
    log = SpanLog(None, 0.0, lambda: 0.0)
    for _ in range(2 * MOST_SPANS):
        log.begin("step", "internal", None, 0.0)
    for _ in range(2 * MOST_EVENTS):
        log.root.event("retry", 0.0)
    assert len(log.spans) == MOST_SPANS
    assert log.dropped == MOST_SPANS + 1
    assert len(log.root.events) == MOST_EVENTS
