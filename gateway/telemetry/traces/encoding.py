"""Spans as OTLP protobuf: https://opentelemetry.io/docs/specs/otlp.

The messages are written directly: objects of protobuf cost several times as much as all other work for a trace. The
tags are those of `opentelemetry/proto/trace/v1/trace.proto` and `common/v1/common.proto`.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.metadata import version
from struct import Struct
from typing import NamedTuple

from adapters.spans import Attribute, Span, SpanEvent, SpanLog

SCOPE = "headrace"
_VERSION = version("headrace")
_KINDS = {"internal": b"\x30\x01", "server": b"\x30\x02", "client": b"\x30\x03"}
_START_AND_END = Struct("<cQcQ").pack
_TIME = Struct("<cQ").pack
_DOUBLE = Struct("<cd").pack
_LENGTHS = [bytes([length]) for length in range(128)]
_TRUE, _FALSE = b"\x10\x01", b"\x10\x00"
_INT64 = 1 << 64
_FREQUENT = 64
"""Characters of the longest text whose encoded pair is cached."""
_UNIQUE = frozenset({"headrace.request_id", "headrace.cost", "gen_ai.response.id"})
"""Attributes with a value of their own in each trace."""


class EndedTrace(NamedTuple):
    """The spans of a request that has ended."""

    log: SpanLog
    offset: float
    """Unix seconds at loop time 0."""
    ended: float
    """Loop time of the end, for spans that have none."""


def encode(resource: Mapping[str, str], traces: Iterable[EndedTrace]) -> bytes:
    """One export of all spans of the traces. Each runtime is a service of its own."""
    spans: list[bytes] = []
    of_runtimes: dict[str, list[bytes]] = {}
    for trace in traces:
        begin = b"\x0a\x10%b\x12\x08" % trace.log.trace_id
        spans += [_span(span, trace, begin) for span in trace.log.spans]
        for pool, span in trace.log.reported:
            of_runtimes.setdefault(pool, []).append(_span(span, trace, begin))
    groups = [_group(resource, spans)]
    for pool, reported in of_runtimes.items():
        service = f"{resource.get('service.name', SCOPE)}/{pool}"
        groups.append(_group({**resource, "service.name": service, "headrace.pool": pool}, reported))
    return b"".join(groups)


def _group(resource: Mapping[str, str], spans: list[bytes]) -> bytes:
    """The spans of one service: a `ResourceSpans` in its field of the export."""
    attributes = b"".join(_pairs(b"\x0a", resource))
    scope = _text(b"\x0a", SCOPE) + _text(b"\x12", _VERSION)
    scoped = _field(b"\x0a", scope) + b"".join(spans)
    return _field(b"\x0a", _field(b"\x0a", attributes) + _field(b"\x12", scoped))


def _span(span: Span, trace: EndedTrace, begin: bytes) -> bytes:
    """A span, which begins with the field of its trace's id and the tag of its own id."""
    log, offset = trace.log, trace.offset
    parts = [
        begin, span.id,
        _text(b"\x1a", log.state) if log.state else b"",
        b"\x22\x08" + span.parent if span.parent else b"",
        _text(b"\x2a", span.name),
        _KINDS[span.kind],
        _START_AND_END(
            b"\x39", _nanoseconds(span.start + offset), b"\x41", _nanoseconds((span.end or trace.ended) + offset)
        ),
    ]  # fmt: skip
    parts += _pairs(b"\x4a", span.attributes)
    parts += [_field(b"\x5a", _event(event, offset)) for event in span.events]
    if span.error:
        parts.append(_field(b"\x7a", _text(b"\x12", span.error) + b"\x18\x02"))
    return _field(b"\x12", b"".join(parts))


def _event(event: SpanEvent, offset: float) -> bytes:
    at, name, attributes = event
    return b"".join((_TIME(b"\x09", _nanoseconds(at + offset)), _text(b"\x12", name), *_pairs(b"\x1a", attributes)))


def _nanoseconds(seconds: float) -> int:
    return max(int(seconds * 1e9), 0)


def _pairs(tag: bytes, attributes: Mapping[str, Attribute]) -> list[bytes]:
    """Attributes, each in a field with the tag."""
    return [
        _frequent_pair(tag, name, value)
        if (type(value) is int or (type(value) is str and len(value) <= _FREQUENT)) and name not in _UNIQUE
        else _pair(tag, name, value)
        for name, value in attributes.items()
    ]


def _pair(tag: bytes, name: str, value: Attribute) -> bytes:
    key = _key(name)
    if type(value) is str and len(data := value.encode("utf-8", "replace")) + len(key) < 122:
        size = len(data)  # short texts are most of the attributes: the lengths of all messages are single bytes
        lengths = _LENGTHS[size + len(key) + 4], _LENGTHS[size + 2], _LENGTHS[size]
        return b"%b%b%b\x12%b\x0a%b%b" % (tag, lengths[0], key, lengths[1], lengths[2], data)
    return _field(tag, key + _field(b"\x12", _value(value)))


_frequent_pair = lru_cache(4096)(_pair)
"""Names of models, pools and tenants recur in each trace. Its values are short, so the cache is small."""


@lru_cache(1024)
def _key(name: str) -> bytes:
    return _text(b"\x0a", name)


def _value(value: Attribute) -> bytes:
    if isinstance(value, str):
        return _text(b"\x0a", value)
    if isinstance(value, bool):
        return _TRUE if value else _FALSE
    if isinstance(value, int):
        return b"\x18" + _varint(value % _INT64)
    if isinstance(value, float):
        return _DOUBLE(b"\x21", value)
    return _field(b"\x2a", b"".join([_field(b"\x0a", _value(each)) for each in value]))


def _text(tag: bytes, text: str) -> bytes:
    return _field(tag, text.encode("utf-8", "replace"))


def _field(tag: bytes, data: bytes) -> bytes:
    """A field of bytes, with its length."""
    length = len(data)
    return tag + (_LENGTHS[length] if length < 128 else _varint(length)) + data


def _varint(number: int) -> bytes:
    data = bytearray()
    while number > 127:
        data.append(number & 127 | 128)
        number >>= 7
    data.append(number)
    return bytes(data)
