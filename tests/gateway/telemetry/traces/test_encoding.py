"""Spans as OTLP, compared with the messages of OpenTelemetry's own package."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Status
from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtoSpan

from adapters.spans import Attribute, Kind, Span, SpanLog, TraceContext
from gateway.telemetry.traces.encoding import SCOPE, EndedTrace, encode

texts = st.text(max_size=300)
integers = st.integers(-(2**63), 2**63 - 1)
values = texts | st.booleans() | integers | st.floats() | st.lists(texts, max_size=4).map(tuple)
attributes = st.dictionaries(texts, values, max_size=6)
times = st.floats(0, 1e9)
events = st.lists(st.tuples(times, texts, attributes), max_size=4)
kinds: st.SearchStrategy[Kind] = st.sampled_from(["internal", "server", "client"])
parts = st.tuples(texts, kinds, times, times, st.sampled_from(["", "capacity"]), attributes, events)
contexts = st.builds(
    TraceContext, st.binary(min_size=16, max_size=16), st.binary(min_size=8, max_size=8), st.booleans(), texts
)


def pairs(given: dict[str, Attribute]) -> list[Any]:
    return [KeyValue(key=name, value=any_value(value)) for name, value in given.items()]


def any_value(value: Attribute) -> Any:
    if isinstance(value, str):
        return AnyValue(string_value=value)
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    return AnyValue(array_value=ArrayValue(values=[any_value(each) for each in value]))


def expected_span(span: Span, trace: EndedTrace) -> Any:
    def nanoseconds(at: float) -> int:
        return int((at + trace.offset) * 1e9)

    kind: Any = {"internal": 1, "server": 2, "client": 3}[span.kind]
    failed: Any = 2
    return ProtoSpan(
        trace_id=trace.log.trace_id, span_id=span.id, parent_span_id=span.parent, trace_state=trace.log.state,
        name=span.name, kind=kind,
        start_time_unix_nano=nanoseconds(span.start), end_time_unix_nano=nanoseconds(span.end or trace.ended),
        attributes=pairs(span.attributes),
        events=[
            ProtoSpan.Event(time_unix_nano=nanoseconds(at), name=name, attributes=pairs(given))
            for at, name, given in span.events
        ],
        status=Status(code=failed, message=span.error) if span.error else None,
    )  # fmt: skip


def group(resource: dict[str, str], spans: list[Any], scope_version: str) -> Any:
    scope = ScopeSpans(spans=spans)
    scope.scope.name, scope.scope.version = SCOPE, scope_version
    return ResourceSpans(resource=Resource(attributes=pairs({**resource})), scope_spans=[scope])


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(contexts | st.none(), st.lists(parts, max_size=4), st.lists(parts, max_size=2)), max_size=3),
    st.dictionaries(texts, texts, max_size=3),
    st.floats(0, 2e9),
)
def test_an_export_is_that_of_protobuf(
    requests: list[tuple[TraceContext | None, list[Any], list[Any]]], resource: dict[str, str], offset: float
) -> None:
    resource |= {"service.name": "gateway"}
    traces: list[EndedTrace] = []
    for context, own, reported in requests:
        log = SpanLog(context, 1.0, lambda: 2.0)
        assert log.root
        for name, kind, start, end, error, about, moments in own:
            span = log.begin(name, kind, None, start)
            span.finish(end, error)
            span.attributes, span.events = about, tuple(moments)
        for name, kind, start, end, error, about, moments in reported:
            span = Span(log, name, kind, b"", start)
            span.finish(end, error)
            span.attributes, span.events = about, tuple(moments)
            log.reported += (("pool", span),)
        traces.append(EndedTrace(log, offset, 3.0))
    received = ExportTraceServiceRequest.FromString(encode(resource, traces))
    scope_version = received.resource_spans[0].scope_spans[0].scope.version
    assert scope_version
    own_spans = [expected_span(span, trace) for trace in traces for span in trace.log.spans]
    groups = [group(resource, own_spans, scope_version)]
    of_runtimes = [expected_span(span, trace) for trace in traces for _, span in trace.log.reported]
    if of_runtimes:
        renamed = {**resource, "service.name": "gateway/pool", "headrace.pool": "pool"}
        groups.append(group(renamed, of_runtimes, scope_version))
    expected = ExportTraceServiceRequest(resource_spans=groups)
    assert received.SerializeToString(deterministic=True) == expected.SerializeToString(deterministic=True)


def test_a_text_that_is_no_unicode_is_replaced() -> None:
    log = SpanLog(None, 1.0, lambda: 2.0)
    log.root.attributes["headrace.model"] = "\ud800"
    message = ExportTraceServiceRequest.FromString(encode({}, [EndedTrace(log, 0.0, 1.0)]))
    assert message.resource_spans[0].scope_spans[0].spans[0].attributes[0].value.string_value == "?"
