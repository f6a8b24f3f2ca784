"""Spans as OTLP protobuf: https://opentelemetry.io/docs/specs/otlp."""

from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Status
from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtoSpan

from adapters.spans import Attribute, Span, SpanLog

SCOPE = "headrace"
_VERSION = version("headrace")
_KINDS = {
    "internal": ProtoSpan.SPAN_KIND_INTERNAL,
    "server": ProtoSpan.SPAN_KIND_SERVER,
    "client": ProtoSpan.SPAN_KIND_CLIENT,
}


class EndedTrace(NamedTuple):
    """The spans of a request that has ended."""

    log: SpanLog
    offset: float
    """Unix seconds at loop time 0."""
    ended: float
    """Loop time of the end, for spans that have none."""


def encode(resource: Mapping[str, str], traces: Iterable[EndedTrace]) -> bytes:
    """One export of all spans of the traces. Each runtime is a service of its own."""
    spans: list[Any] = []
    of_runtimes: dict[str, list[Any]] = {}
    for trace in traces:
        spans += [_span(span, trace) for span in trace.log.spans]
        for pool, span in trace.log.reported:
            of_runtimes.setdefault(pool, []).append(_span(span, trace))
    groups = [_group(resource, spans)]
    for pool, reported in of_runtimes.items():
        service = f"{resource.get('service.name', SCOPE)}/{pool}"
        groups.append(_group({**resource, "service.name": service, "headrace.pool": pool}, reported))
    return bytes(ExportTraceServiceRequest(resource_spans=groups).SerializeToString())


def _group(resource: Mapping[str, str], spans: list[Any]) -> Any:
    """The spans of one service."""
    scope = ScopeSpans(spans=spans)
    scope.scope.name, scope.scope.version = SCOPE, _VERSION
    attributes = [_pair(name, value) for name, value in resource.items()]
    return ResourceSpans(resource=Resource(attributes=attributes), scope_spans=[scope])


def _span(span: Span, trace: EndedTrace) -> Any:
    log, offset = trace.log, trace.offset
    return ProtoSpan(
        trace_id=log.trace_id,
        span_id=span.id,
        parent_span_id=span.parent,
        trace_state=log.state,
        name=span.name,
        kind=_KINDS[span.kind],
        start_time_unix_nano=_nanoseconds(span.start + offset),
        end_time_unix_nano=_nanoseconds((span.end or trace.ended) + offset),
        attributes=[_pair(name, value) for name, value in span.attributes.items()],
        events=[
            ProtoSpan.Event(
                time_unix_nano=_nanoseconds(at + offset),
                name=name,
                attributes=[_pair(key, value) for key, value in attributes.items()],
            )
            for at, name, attributes in span.events
        ],
        status=Status(code=Status.STATUS_CODE_ERROR, message=span.error) if span.error else None,
    )


def _nanoseconds(seconds: float) -> int:
    return max(int(seconds * 1e9), 0)


def _pair(name: str, value: Attribute) -> Any:
    return KeyValue(key=name, value=_value(value))


def _value(value: Attribute) -> Any:
    if isinstance(value, str):
        return AnyValue(string_value=value.encode("utf-8", "replace").decode())
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    return AnyValue(array_value=ArrayValue(values=[_value(each) for each in value]))
