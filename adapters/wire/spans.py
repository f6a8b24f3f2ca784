"""Spans of the bundled runtimes, on their way to the gateway: MessagePack.

A gateway posts the ids of the spans of its attempts, 8 bytes each, to `PATH`; a runtime responds with the spans below
them. So the gateway alone decides which requests are traced, at their end, and only the gateway has a connection to a
collector.
"""

from collections.abc import Iterable

import msgspec

from adapters.spans import Attribute, Kind, Span, SpanLog
from adapters.wire import decoding

PATH = "/headrace/spans"
ID_BYTES = 8
MOST_IDS = 128
"""Attempts in one request: their spans are decoded in one turn of the event loop."""
MOST_REPORTED = 256
"""Spans of the runtimes of one request."""


class ReportedEvent(msgspec.Struct, array_like=True):
    """An event; `time` is Unix seconds."""

    time: float
    name: str
    attributes: dict[str, str | bool | int | float | list[str]]


class ReportedSpan(msgspec.Struct, array_like=True):
    """A span of a runtime; times are Unix seconds. `attempt` is the id of the gateway's span that it belongs to."""

    attempt: bytes
    id: bytes
    parent: bytes
    name: str
    kind: Kind
    start: float
    end: float
    error: str
    attributes: dict[str, str | bool | int | float | list[str]]
    events: list[ReportedEvent]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[ReportedSpan]).decode


def encode(logs: Iterable[SpanLog], offset: float) -> bytes:
    """The ended spans of the logs of a runtime; `offset` is Unix seconds at time 0 of their clock."""
    ended = [(log, span) for log in logs for span in log.spans if span.end]
    for log, span in ended:
        span.describe(log)
    return _encode([reported(span, log.parent, offset) for log, span in ended])


def decode(body: bytes) -> list[ReportedSpan]:
    """The spans of a response. Raises `ValueError`."""
    try:
        return _decode(body)
    except decoding.MALFORMED_JSON as error:
        raise ValueError(f"not spans: {error}") from None


def add(reported: ReportedSpan, log: SpanLog, pool: str, offset: float) -> None:
    """Add a runtime's span to the trace of the gateway's request, whose clock has the `offset`."""
    log.reported += ((pool, span_of(reported, log, offset)),)


def span_of(reported: ReportedSpan, log: SpanLog, offset: float) -> Span:
    """The span of a log whose clock has the `offset`."""
    span = Span(log, reported.name, reported.kind, reported.parent, reported.start - offset, reported.id)
    if reported.end:
        span.finish(reported.end - offset, reported.error)
    span.attributes = _attributes(reported.attributes)
    for each in reported.events:
        span.event(each.name, each.time - offset, **_attributes(each.attributes))
    return span


def reported(span: Span, attempt: bytes, offset: float) -> ReportedSpan:
    """A span that is described, of a clock with the `offset`; its end is 0 while it lasts."""
    events = [ReportedEvent(at + offset, name, _plain(attributes)) for at, name, attributes in span.events]
    start, end, attributes = span.start + offset, span.end and span.end + offset, _plain(span.attributes)
    return ReportedSpan(attempt, span.id, span.parent, span.name, span.kind, start, end, span.error, attributes, events)


def _plain(attributes: dict[str, Attribute]) -> dict[str, str | bool | int | float | list[str]]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in attributes.items()}


def _attributes(plain: dict[str, str | bool | int | float | list[str]]) -> dict[str, Attribute]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in plain.items()}
